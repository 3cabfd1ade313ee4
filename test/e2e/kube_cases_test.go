package e2e

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// kubeCase is a case that every cluster goes through. What it returns stands
// behind "passed".
type kubeCase struct {
	name  string
	nodes int // at least
	run   func(t *testing.T, c *cluster) (said string)

	noAgent   bool // it takes our plugins away, of which fairlead-ipam is one
	agentOnly bool
}

func kubeCases() []kubeCase {
	return []kubeCase{
		{name: "Deployment: pods on all nodes, each to each", nodes: 1, run: deployment},
		{name: "Service: ClusterIP, from pods and nodes", nodes: 1, run: clusterIP},
		{name: "Service: NodePort, from outside, nodes and pods", nodes: 1, run: nodePort},
		{name: "host ports beside kube-proxy", nodes: 1, run: kubeHostPorts},
		{name: "readiness: an unready pod is not asked", nodes: 1, run: readiness},
		{name: "rolling restart under load", nodes: 1, run: rollingRestart},
		{name: "drain of a node under load", nodes: 2, run: drain},
		{name: "kubelet and containerd killed while pods start", nodes: 1, run: kubeKilled},
		{name: "the page's commands, the DaemonSet, and back", nodes: 1, run: daemonSet, noAgent: true},
		{name: "all agents restarted under load", nodes: 2, run: agentsRestarted, agentOnly: true},
		{name: "rolling restart under load while no agent runs", nodes: 2, run: agentsGone, agentOnly: true},
	}
}

// web brings up servers on all nodes, and takes them down when the case is over.
func (c *cluster) web(t *testing.T, seconds int) []kubePod {
	t.Helper()
	values := c.webValues()
	values["LINGER"] = fmt.Sprint(seconds)
	c.apply(t, "web.yaml", values)
	t.Cleanup(func() { c.delete(t, "web.yaml") })
	c.rolledOut(t)
	pods := c.pods(t, "web")
	if len(pods) != 2*len(c.hosts) {
		t.Fatalf("%d pods: %+v", len(pods), pods)
	}
	return pods
}

func (c *cluster) node(t *testing.T, name string) *kubeNode {
	t.Helper()
	i := slices.IndexFunc(c.hosts, func(n *kubeNode) bool { return n.name == name })
	if i < 0 {
		t.Fatalf("no node %q", name)
	}
	return c.hosts[i]
}

func deployment(t *testing.T, c *cluster) string {
	pods := c.web(t, 1)
	used := map[string]int{}
	for _, p := range pods {
		used[p.node]++
		ip, err := netip.ParseAddr(p.ip)
		if n := c.node(t, p.node); err != nil || !netip.MustParsePrefix(n.pods).Contains(ip) {
			t.Errorf("%s on %s has the address %s, not of %s", p.name, p.node, p.ip, n.pods)
		}
	}
	if len(used) != len(c.hosts) {
		t.Errorf("pods by node: %v", used)
	}
	asked := 0
	for i, from := range pods {
		for j, to := range pods {
			if i != j && (j == (i+1)%len(pods) || from.node != to.node) {
				network := []string{"tcp", "udp"}[(i+j)%2]
				askFrom(t, c.in(from), network, at(to.ip, servePort), to.name, from.ip)
				asked++
			}
		}
		// From the node, and through another node's route from the wire.
		askFrom(t, c.node(t, from.node).on, "tcp", at(from.ip, servePort), from.name, "")
		askFrom(t, c.outside, "udp", at(from.ip, servePort), from.name, outsideV4)
	}
	c.healthy(t)
	return fmt.Sprintf("%d pods, %d pairs", len(pods), asked)
}

// healthy has our own commands look at every node.
func (c *cluster) healthy(t *testing.T) {
	t.Helper()
	for _, n := range c.hosts {
		for _, command := range []string{"doctor", "repair --dry-run", "gc --all --dry-run"} {
			if out, err := n.run(append([]string{"/mnt/e2e/fairlead"}, strings.Fields(command)...)...); err != nil {
				t.Errorf("fairlead %s on %s: %v: %s", command, n.name, err, out)
			}
		}
	}
}

func kubeHostPorts(t *testing.T, c *cluster) string {
	n := c.hosts[len(c.hosts)-1]
	c.apply(t, "hostport.yaml", map[string]string{"NODE": n.name})
	t.Cleanup(func() { c.delete(t, "hostport.yaml") })
	c.need(t, "wait", "--for=condition=Ready", "pod/port", "--timeout=60s")
	pod := c.pods(t, "port")[0]
	for _, network := range []string{"tcp", "udp"} {
		askFrom(t, c.outside, network, at(n.ip, 18080), "port", outsideV4)
		for _, ip := range []string{n.ip, "127.0.0.1"} {
			askFrom(t, n.on, network, at(ip, 18080), "port", "")
		}
		askFrom(t, c.in(pod), network, at(n.ip, 18080), "port", "") // a hairpin
		if other := c.hosts[0]; other != n {
			askFrom(t, other.on, network, at(n.ip, 18080), "port", other.ip)
		}
	}
	askFrom(t, c.outside, "tcp", at(n.ip, 30081), "port", "") // the service of the same pod
	c.healthy(t)
	return ""
}

func kubeKilled(t *testing.T, c *cluster) string {
	n := c.hosts[len(c.hosts)-1]
	values := c.webValues()
	values["REPLICAS"] = fmt.Sprint(12 * len(c.hosts))
	c.apply(t, "web.yaml", values)
	t.Cleanup(func() { c.delete(t, "web.yaml") })
	eventually(t, time.Minute, func() error {
		if held := n.held(t); len(held) < 3 {
			return fmt.Errorf("%d addresses are held", len(held))
		}
		return nil
	})
	if out, err := n.run("kill", "-9", n.kubelet, n.containerd); err != nil {
		t.Fatal(err, out)
	}
	held := len(n.held(t))
	time.Sleep(time.Second)
	n.startContainerd(t)
	n.startKubelet(t)
	c.rolledOut(t)
	standing := len(n.held(t))
	c.delete(t, "web.yaml")
	left, byHand := len(n.held(t)), n.endForgotten(t)
	if out, err := n.run("/mnt/e2e/fairlead", "gc", "--all"); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	return fmt.Sprintf("addresses held: %d at the kill, %d when all pods were ready, %d after their deletion, before gc; processes and namespaces that containerd forgot, ended by hand: %d",
		held, standing, left, byHand)
}

// held are the addresses that IPAM has given out on the node.
func (n *kubeNode) held(t *testing.T) (ips []string) {
	t.Helper()
	dir := "/networks/" + kubeNetwork + "/"
	if n.cluster.agent {
		dir = "/fairlead/addresses/default/"
	}
	for _, f := range n.files(t) {
		ip := f[strings.LastIndex(f, "/")+1:]
		if _, err := netip.ParseAddr(ip); err == nil && strings.Contains(f, dir) {
			ips = append(ips, ip)
		}
	}
	return ips
}
