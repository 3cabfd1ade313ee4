package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// cluster is a Kubernetes cluster whose nodes are simulated hosts.
type cluster struct {
	programs
	bin       string // the machine's directory of Kubernetes programs
	reference string // the machine's directory of reference plugins
	runtime   *containerd
	clusterKind
	wire     wire
	control  *host
	api      string   // process ID of the API server on the control host
	apiFlags []string // more flags of the API server
	hosts    []*kubeNode
	loaded   []string // images
	idleKeys []string // keys of the idle store before the cases
}

// newKubeCluster starts a cluster, and runs and removes one pod on each node.
func newKubeCluster(t *testing.T, p programs, bin string, k clusterKind) *cluster {
	t.Helper()
	c := &cluster{programs: p, bin: bin, clusterKind: k, runtime: containerd23(t, p), reference: referencePlugins(t), wire: newWire(t)}
	c.startControl(t)
	for i := range k.nodes {
		c.hosts = append(c.hosts, c.newNode(t, i+1))
	}
	for _, n := range c.hosts {
		n.configureNetwork(t)
	}
	if k.network != staticRoutes {
		c.startAgents(t)
	} else {
		c.addRoutes(t)
	}
	c.mustKubectl(t, "wait", "--for=condition=Ready", "node", "--all", "--timeout=120s")
	for _, n := range c.hosts {
		c.warm(t, n)
	}
	if k.blocks {
		c.startFixed(t, "warm", k.nodes, "", nil)
		c.endFixed(t, "warm")
	}
	for _, n := range c.hosts {
		n.settle(t)
	}
	if k.network != staticRoutes {
		c.idleKeys = c.waitForIdleStore(t)
	}
	return c
}

// warm runs a pod with host ports, so that the node's shared objects exist from then on.
func (c *cluster) warm(t *testing.T, n *kubeNode) {
	t.Helper()
	c.apply(t, "hostport.yaml", map[string]string{"NODE": n.name})
	c.mustKubectl(t, "wait", "--for=condition=Ready", "pod/port", "--timeout=60s")
	c.delete(t, "hostport.yaml")
}

// addRoutes adds a route to each node's pods on all other nodes and outside, which a node agent would do otherwise.
func (c *cluster) addRoutes(t *testing.T) {
	t.Helper()
	for _, to := range c.hosts {
		c.wire.ip(t, "route replace "+to.pods+" via "+to.ip)
		for _, from := range c.hosts {
			if from != to {
				from.shell(t, "ip route replace "+to.pods+" via "+to.ip)
			}
		}
	}
}

// settle waits until the node's state stops changing, and saves it.
func (n *kubeNode) settle(t *testing.T) {
	t.Helper()
	kerneltest.Within(t, 30*time.Second, func() error {
		first := n.state(t)
		time.Sleep(500 * time.Millisecond)
		n.baseline = n.state(t)
		d, own := kerneltest.DiffLines(first, n.baseline), 0
		for _, l := range n.baseline {
			if strings.HasPrefix(l, "process containerd-shim") {
				if own++; own > 1 || n.cluster.network == staticRoutes { // the agent's own pod stays
					d = append(d, l)
				}
			}
		}
		if len(d) != 0 {
			return fmt.Errorf("the state of %s still changes:\n%s", n.name, strings.Join(d, "\n"))
		}
		return nil
	})
}

// checkUnchanged fails the case if the state of a node differs from before.
func (c *cluster) checkUnchanged(t *testing.T) {
	t.Helper()
	for _, n := range c.hosts {
		var left []string
		for end := time.Now().Add(kerneltest.Slow(20 * time.Second)); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
			if left = kerneltest.DiffLines(n.baseline, n.state(t)); len(left) == 0 {
				break
			}
		}
		if len(left) != 0 {
			t.Errorf("%s differs from before in %d lines:\n%s", n.name, len(left), strings.Join(left[:min(len(left), 40)], "\n"))
		}
	}
	if c.network != staticRoutes {
		c.checkAgents(t)
	}
}

// kubectl runs kubectl on the control host. On a slow machine, it waits longer than --timeout says.
func (c *cluster) kubectl(argv ...string) (string, error) {
	argv = slices.Clone(argv)
	for i, a := range argv {
		if text, is := strings.CutPrefix(a, "--timeout="); is {
			limit, err := time.ParseDuration(text)
			if err != nil {
				return "", err
			}
			argv[i] = "--timeout=" + kerneltest.Slow(limit).String()
		}
	}
	return c.control.run(append([]string{kubernetesBin + "/kubectl", "--kubeconfig=" + kubeConfig}, argv...)...)
}

func (c *cluster) mustKubectl(t *testing.T, argv ...string) string {
	t.Helper()
	out, err := c.kubectl(argv...)
	if err != nil {
		seen, _ := c.kubectl("get", "pods,nodes", "-A", "-o", "wide")
		events, _ := c.kubectl("get", "events", "-A", "--sort-by=.lastTimestamp")
		t.Fatalf("%v\n%s\n%s", err, seen, events[max(0, len(events)-3000):])
	}
	return out
}

// mustFairlead runs fairlead kubernetes on the control host.
func (c *cluster) mustFairlead(t *testing.T, argv ...string) string {
	t.Helper()
	out, err := c.control.run(append([]string{"/mnt/e2e/fairlead", "kubernetes"}, append(argv, "--kubeconfig="+kubeConfig)...)...)
	if err != nil {
		t.Fatal(err, out)
	}
	return out
}

// webValues returns values for web.yaml: two servers per node.
func (c *cluster) webValues() map[string]string {
	return map[string]string{"REPLICAS": fmt.Sprint(2 * len(c.hosts)), "LINGER": "1"}
}

func (c *cluster) apply(t *testing.T, file string, values map[string]string) {
	t.Helper()
	values["IMAGE"] = imageName
	c.control.write(t, "/run/"+file, fill(t, file, values))
	c.mustKubectl(t, "apply", "-f", "/run/"+file)
}

func (c *cluster) waitForRollout(t *testing.T) {
	t.Helper()
	c.mustKubectl(t, "rollout", "status", "deployment/web", "--timeout=110s")
}

// delete removes the objects of a file and waits until no pod is left.
func (c *cluster) delete(t *testing.T, file string) {
	t.Helper()
	c.mustKubectl(t, "delete", "-f", "/run/"+file, "--wait=true", "--cascade=foreground", "--ignore-not-found")
	c.noPods(t)
}

func (c *cluster) noPods(t *testing.T) {
	t.Helper()
	kerneltest.Within(t, time.Minute, func() error {
		out, err := c.kubectl("get", "pods", "-o", "name")
		if out != "" {
			err = errors.Join(err, errors.New("pods still exist: "+out))
		}
		return err
	})
}

// kubePod is a pod as the API server reports it.
type kubePod struct {
	name, node, ip string
	ips            []string // of all families
}

// pods returns the pods with a label app that are not being deleted, sorted by node and name.
func (c *cluster) pods(t *testing.T, app string) (pods []kubePod) {
	t.Helper()
	var list struct {
		Items []struct {
			Metadata struct{ Name, DeletionTimestamp string }
			Spec     struct{ NodeName string }
			Status   struct{ PodIPs []struct{ IP string } }
		}
	}
	if err := json.Unmarshal([]byte(c.mustKubectl(t, "get", "pods", "-l", "app="+app, "-o", "json")), &list); err != nil {
		t.Fatal(err)
	}
	for _, p := range list.Items {
		if p.Metadata.DeletionTimestamp == "" {
			pod := kubePod{name: p.Metadata.Name, node: p.Spec.NodeName}
			for _, a := range p.Status.PodIPs {
				pod.ips = append(pod.ips, a.IP)
			}
			if len(pod.ips) > 0 {
				pod.ip = pod.ips[0]
			}
			pods = append(pods, pod)
		}
	}
	slices.SortFunc(pods, func(a, b kubePod) int { return strings.Compare(a.node+a.name, b.node+b.name) })
	return pods
}

// differentAddresses returns the number of the pods' addresses. No two pods may have one address.
func differentAddresses(t *testing.T, pods []kubePod) int {
	t.Helper()
	seen := map[string]bool{}
	for _, p := range pods {
		for _, ip := range p.ips {
			if seen[ip] {
				t.Errorf("two pods have %s", ip)
			}
			seen[ip] = true
		}
	}
	return len(seen)
}

// inPod returns a function that runs the probe in a pod.
func (c *cluster) inPod(p kubePod) probeFunc {
	return func(argv ...string) (string, error) {
		return c.kubectl(append([]string{"exec", p.name, "--", "/probe"}, argv...)...)
	}
}

// onNode runs the probe on the node itself.
func (n *kubeNode) onNode(argv ...string) (string, error) {
	return n.run(append([]string{"/mnt/e2e/probe"}, argv...)...)
}

// fromOutside runs the probe outside of the cluster.
func (c *cluster) fromOutside(argv ...string) (string, error) {
	return run(append([]string{"nsenter", "--net=" + c.wire.netns, "--", c.programs.probe}, argv...)...)
}
