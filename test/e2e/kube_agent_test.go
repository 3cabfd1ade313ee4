package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/contrib/kubernetes"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

const agentStore = "http://" + controlIP + ":2379"

// startAgents connects the nodes with our agent. It uses the published manifest, except for the store, the pod range,
// and tunnels between all nodes. From outside, pods are reachable through any node.
func (c *cluster) startAgents(t *testing.T) {
	t.Helper()
	for _, n := range c.hosts {
		c.loadAgentImage(t, n)
	}
	if c.blocks {
		c.giveRange(t, c.hosts[0])
		c.renderAgents(t, c.blockValues())
	} else {
		c.fillManifest(t)
	}
	c.applyAgents(t)
	for _, n := range c.hosts {
		kerneltest.Within(t, 30*time.Second, func() error {
			out, err := n.run("/mnt/e2e/fairlead", "agent", "status", "--json")
			if peers := fmt.Sprintf(`"peers": %d`, len(c.hosts)-1); err == nil && !strings.Contains(out, peers) {
				err = fmt.Errorf("the agent of %s reports %s", n.name, out)
			}
			return err
		})
	}
	for _, p := range []string{podRange, podRange6, fixedRange, fixedRange6} {
		via := c.hosts[0].ip
		if strings.Contains(p, ":") {
			via = sixOf(via)
		}
		c.wire.ip(t, "route replace "+p+" via "+via)
	}
	switch {
	case c.blocks:
		c.apply(t, "fixednetwork.yaml", map[string]string{})
	case c.network == kubernetesAgent:
		c.routeControl(t)
	}
}

// fillManifest writes the published manifest with the cluster's changes to the control host.
func (c *cluster) fillManifest(t *testing.T) {
	t.Helper()
	manifest, changes := "etcd.yaml", map[string]string{
		"http://10.0.0.1:2379": agentStore, "{cidr: 10.244.0.0/16}": fmt.Sprintf("{cidr: %s, block: 24}", podRange), "{type: host-gw, when: direct}, ": "",
	}
	if c.network == kubernetesAgent {
		manifest, changes = "fairlead.yaml", map[string]string{"      - assign: podCIDR\n        cidr: 10.244.0.0/16\n": c.podSubnets()}
	}
	raw, err := os.ReadFile("../../contrib/kubernetes/" + manifest)
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	for from, to := range changes {
		if strings.Count(text, from) != 1 {
			t.Fatalf("the manifest does not contain %s exactly once", from)
		}
		text = strings.Replace(text, from, to, 1)
	}
	c.control.write(t, agentManifest, text)
}

// renderAgents writes the manifest with values to the control host.
func (c *cluster) renderAgents(t *testing.T, values kubernetes.Values) {
	t.Helper()
	manifest, err := kubernetes.Render(kubernetes.Options{Namespace: kubernetes.DefaultNamespace, Values: values})
	if err != nil {
		t.Fatal(err)
	}
	c.control.write(t, agentManifest, string(manifest))
}

func (c *cluster) loadAgentImage(t *testing.T, n *kubeNode) {
	t.Helper()
	n.shell(t, "ctr -n k8s.io images import /mnt/e2e/bin/fairlead-0.1.0-image.tar")
}

// routeControl adds a route to each node's pods on the control host: the API server's proxy connects to them. A route by
// way of another node would not do. kube-proxy drops packets of connections of which that node sees one direction only.
func (c *cluster) routeControl(t *testing.T) {
	t.Helper()
	for _, n := range c.hosts {
		for cidr := range strings.FieldsSeq(c.mustKubectl(t, "get", "node", n.name, "-o", "jsonpath={.spec.podCIDRs[*]}")) {
			via := n.ip
			if strings.Contains(cidr, ":") {
				via = sixOf(n.ip)
			}
			c.control.shell(t, "ip route replace "+cidr+" via "+via)
		}
	}
}

// podSubnets returns the subnets of the network in the manifest.
func (c *cluster) podSubnets() (text string) {
	for cidr := range strings.SplitSeq(c.family.pick(podRange, podRange6), ",") {
		text += "      - {assign: podCIDR, cidr: \"" + cidr + "\"}\n"
	}
	return text
}

// agentManifest is the path of the agents' manifest on the control host.
const agentManifest = "/run/agents.yaml"

// applyAgents applies the agents' manifest and waits until all agents are ready.
func (c *cluster) applyAgents(t *testing.T) {
	t.Helper()
	c.mustKubectl(t, "apply", "-f", agentManifest)
	c.agents(t, "rollout", "status", "daemonset/"+c.agentName(), "--timeout=120s")
}

// agentName is the name of the agents' DaemonSet, and the value of its label.
func (c *cluster) agentName() string {
	if c.network == kubernetesAgent {
		return "fairlead"
	}
	return "fairlead-agent"
}

// agents runs kubectl in the agents' namespace.
func (c *cluster) agents(t *testing.T, argv ...string) string {
	t.Helper()
	namespace := "kube-system"
	if c.network == kubernetesAgent {
		namespace = "fairlead-system"
	}
	return c.mustKubectl(t, append([]string{"-n", namespace}, argv...)...)
}

// restartAgents restarts all agents while requests continue, as an upgrade does. The new agents find nothing to
// change.
func restartAgents(t *testing.T, c *cluster) string {
	pods := c.startWeb(t, lingerSeconds)
	before := c.agentPods(t)
	summary := c.underLoad(t, pods, func() {
		c.agents(t, "rollout", "restart", "daemonset/"+c.agentName())
		c.agents(t, "rollout", "status", "daemonset/"+c.agentName(), "--timeout=110s")
	})
	for _, p := range c.agentPods(t) {
		if slices.Contains(before, p) {
			t.Errorf("%s was not replaced", p)
		}
	}
	c.wantNoChanges(t)
	return summary + "; the new agents changed nothing in the kernel"
}

// rolloutWithoutAgents replaces all pods of a service while no agent runs. With network policy, the new pods wait for
// the agents, and the old ones serve meanwhile.
func rolloutWithoutAgents(t *testing.T, c *cluster) string {
	pods := c.startWeb(t, lingerSeconds)
	t.Cleanup(func() { c.applyAgents(t) })
	summary := c.underLoad(t, pods, func() {
		c.deleteAgents(t)
		if c.network == kubernetesAgent {
			c.mustKubectl(t, "rollout", "restart", "deployment/web")
			c.waitForRefusal(t)
			c.applyAgents(t)
			c.waitForRollout(t)
			kerneltest.Within(t, time.Minute, func() error { return c.gone(t, pods) })
		} else {
			c.replaceWeb(t, pods)
			c.applyAgents(t)
		}
	})
	c.wantNoChanges(t)
	return summary
}

// deleteAgents deletes the DaemonSet, waits until no agent runs, and deletes the events so far: waitForRefusal must see
// later ones.
func (c *cluster) deleteAgents(t *testing.T) {
	t.Helper()
	c.agents(t, "delete", "daemonset", c.agentName(), "--cascade=foreground")
	kerneltest.Within(t, 30*time.Second, func() error {
		if left := c.agentPods(t); len(left) != 0 {
			return fmt.Errorf("agents still exist: %v", left)
		}
		return nil
	})
	c.mustKubectl(t, "delete", "--raw", "/api/v1/namespaces/default/events") // one request, however many there are
}

// waitForRefusal waits until a plugin has refused to start a pod, because it cannot reach the agent.
func (c *cluster) waitForRefusal(t *testing.T) {
	t.Helper()
	kerneltest.Within(t, time.Minute, func() error {
		out, err := c.kubectl("get", "events", "--field-selector=reason=FailedCreatePodSandBox", "-o", "jsonpath={.items[*].message}")
		if err == nil && !strings.Contains(out, "fairlead-policy: network policy of pod") {
			err = fmt.Errorf("no pod waits for the agent: %s", out)
		}
		return err
	})
}

// wantNoChanges fails the case if the new agents changed anything in the kernel.
func (c *cluster) wantNoChanges(t *testing.T) {
	t.Helper()
	for _, n := range c.hosts {
		if a := n.agent(t); !a.Ready || a.Counts.Made != 0 || a.Counts.Removed != 0 || a.Counts.Failed != 0 {
			t.Errorf("the new agent of %s: %+v", n.name, a)
		}
	}
	c.checkHealthy(t)
}

// agentPods returns the names of the agent's pods.
func (c *cluster) agentPods(t *testing.T) []string {
	t.Helper()
	return strings.Fields(c.agents(t, "get", "pods", "-l", "app.kubernetes.io/name="+c.agentName(), "-o", "name"))
}

// agentState is an agent's reported status.
type agentState struct {
	Ready  bool
	Peers  int
	Counts struct{ Looks, Listed, Made, Removed, Failed int }
}

func (n *kubeNode) agent(t *testing.T) (s agentState) {
	t.Helper()
	raw, err := n.run("/mnt/e2e/fairlead", "agent", "status", "--json")
	if err == nil {
		err = json.Unmarshal([]byte(raw), &s)
	}
	if err != nil {
		t.Errorf("the agent of %s: %v", n.name, err)
	}
	return s
}

// storeKeys returns our agents' keys in etcd, or their objects in the Kubernetes API.
func (c *cluster) storeKeys(t *testing.T) (keys []string) {
	t.Helper()
	if c.network == kubernetesAgent {
		return strings.Fields(c.agents(t, "get", "leases,networks.fairlead.io,ipblocks,ipaddresses.fairlead.io,fixedaddresses", "-o", "name"))
	}
	request, err := json.Marshal(object{"key": []byte(agentPrefix), "range_end": []byte(agentPrefixEnd), "keys_only": true})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := c.control.run("curl", "-sS", "--fail", agentStore+"/v3/kv/range", "-d", string(request))
	var answer struct{ Kvs []struct{ Key []byte } }
	if err == nil {
		err = json.Unmarshal([]byte(raw), &answer)
	}
	if err != nil {
		t.Fatalf("list the keys of the store: %v", err)
	}
	for _, kv := range answer.Kvs {
		keys = append(keys, string(kv.Key))
	}
	return keys
}

const agentPrefix, agentPrefixEnd = "/fairlead/", "/fairlead0"

// waitForIdleStore waits until the store contains no container, and returns its keys.
func (c *cluster) waitForIdleStore(t *testing.T) (keys []string) {
	t.Helper()
	kerneltest.Within(t, 10*time.Second, func() error {
		keys = c.storeKeys(t)
		if i := slices.IndexFunc(keys, func(k string) bool { return strings.HasPrefix(k, agentPrefix+"endpoints/") }); i >= 0 {
			return fmt.Errorf("the store still has %s", keys[i])
		}
		return nil
	})
	return keys
}

// checkAgents fails the case if the store's keys differ from before, or an agent failed to apply an object.
func (c *cluster) checkAgents(t *testing.T) {
	t.Helper()
	if left := kerneltest.DiffLines(c.idleKeys, c.waitForIdleStore(t)); len(left) != 0 {
		t.Errorf("the store differs from before:\n%s", strings.Join(left, "\n"))
	}
	for _, n := range c.hosts {
		if a := n.agent(t); !a.Ready || a.Peers != len(c.hosts)-1 || a.Counts.Failed != 0 {
			t.Errorf("the agent of %s: %+v", n.name, a)
		}
	}
}
