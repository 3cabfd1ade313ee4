package e2e

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// kubeCase is a case that runs in every suitable cluster. The result of run appears after "passed".
type kubeCase struct {
	name  string
	nodes int // minimum
	run   func(t *testing.T, c *cluster) (outcome string)

	noAgent   bool // it removes our plugins, including fairlead-ipam, which the agent needs
	agentOnly bool
	inAPI     bool // only with the Kubernetes API as the store
	blocks    blockCase
}

// blockCase says whether a case runs in the cluster whose network assigns blocks.
type blockCase int

const (
	notInBlocks blockCase = iota
	alsoInBlocks
	onlyInBlocks
)

func kubeCases() []kubeCase {
	return []kubeCase{
		{name: "Deployment: pods on all nodes reach each other", nodes: 1, run: deployment, blocks: alsoInBlocks},
		{name: "Service: ClusterIP, from pods and nodes", nodes: 1, run: clusterIP, blocks: alsoInBlocks},
		{name: "Service: NodePort, from outside, nodes and pods", nodes: 1, run: nodePort},
		{name: "host ports alongside kube-proxy", nodes: 1, run: kubeHostPorts},
		{name: "readiness: an unready pod gets no requests", nodes: 1, run: readiness},
		{name: "rolling restart under load", nodes: 1, run: rollingRestart, blocks: alsoInBlocks},
		{name: "drain of a node under load", nodes: 2, run: drain},
		{name: "kubelet and containerd killed while pods start", nodes: 1, run: kubeletKilled},
		{name: "tutorial commands, DaemonSet, and uninstall", nodes: 1, run: daemonSet, noAgent: true},
		{name: "all agents restarted under load", nodes: 2, run: restartAgents, agentOnly: true, blocks: alsoInBlocks},
		{name: "rolling restart under load while no agent runs", nodes: 2, run: rolloutWithoutAgents, agentOnly: true},
		{name: "upgrade by fairlead kubernetes install, under load", nodes: 2, run: installUnderLoad, inAPI: true},
		{name: "upgrade and rollback, under load", nodes: 2, run: upgradeAndRollBack, inAPI: true},
		{name: "API server away, agent restarted meanwhile", nodes: 2, run: apiAway, inAPI: true},
		{name: "a node joins and is deleted", nodes: 2, run: nodeJoinsAndLeaves, inAPI: true},
		{name: "a node comes back with another address", nodes: 2, run: nodeMoves, inAPI: true},
		{name: "an agent cannot write for another node", nodes: 2, run: strangersRefused, inAPI: true},
		{name: "the directories of k3s, and uninstall", nodes: 2, run: otherDirectories, inAPI: true},
		{name: "blocks: every node reaches pods, hosts, Services and DNS", nodes: 3, run: blocksChecked, blocks: onlyInBlocks},
		{name: "blocks: more pods on a node than a block has addresses", nodes: 3, run: severalBlocks, blocks: onlyInBlocks},
		{name: "blocks: a node is deleted and another one joins", nodes: 3, run: blocksOfDeletedNode, blocks: onlyInBlocks},
		{name: "fixed addresses follow pods to another node", nodes: 3, run: fixedAddresses, blocks: onlyInBlocks},
		{name: "a fixed address leaves a node that died", nodes: 3, run: fixedAddressOfDeadNode, blocks: onlyInBlocks},
		{name: "fairlead network, node, ipam and map with a kubeconfig", nodes: 3, run: commandsWithKubeconfig, blocks: onlyInBlocks},
	}
}

// startWeb deploys servers on all nodes, and removes them when the case ends.
func (c *cluster) startWeb(t *testing.T, seconds int) []kubePod {
	t.Helper()
	values := c.webValues()
	values["LINGER"] = fmt.Sprint(seconds)
	c.apply(t, "web.yaml", values)
	t.Cleanup(func() { c.delete(t, "web.yaml") })
	c.waitForRollout(t)
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
	pods := c.startWeb(t, 1)
	used := map[string]int{}
	for _, p := range pods {
		used[p.node]++
		ip, err := netip.ParseAddr(p.ip)
		if n := c.node(t, p.node); err != nil || !netip.MustParsePrefix(n.pods).Contains(ip) {
			t.Errorf("%s on %s has address %s, outside of %s", p.name, p.node, p.ip, n.pods)
		}
	}
	if len(used) != len(c.hosts) {
		t.Errorf("pods by node: %v", used)
	}
	requests := 0
	for i, from := range pods {
		for j, to := range pods {
			if i != j && (j == (i+1)%len(pods) || from.node != to.node) {
				network := []string{"tcp", "udp"}[(i+j)%2]
				wantAnswer(t, c.inPod(from), network, at(to.ip, servePort), to.name, from.ip)
				requests++
			}
		}
		// From the node itself, and from outside through the route to another node.
		wantAnswer(t, c.node(t, from.node).onNode, "tcp", at(from.ip, servePort), from.name, "")
		wantAnswer(t, c.fromOutside, "udp", at(from.ip, servePort), from.name, outsideV4)
	}
	c.checkHealthy(t)
	return fmt.Sprintf("%d pods, %d pairs", len(pods), requests)
}

// checkHealthy runs our own checks on every node.
func (c *cluster) checkHealthy(t *testing.T) {
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
	c.mustKubectl(t, "wait", "--for=condition=Ready", "pod/port", "--timeout=60s")
	pod := c.pods(t, "port")[0]
	for _, network := range []string{"tcp", "udp"} {
		wantAnswer(t, c.fromOutside, network, at(n.ip, 18080), "port", outsideV4)
		for _, ip := range []string{n.ip, "127.0.0.1"} {
			wantAnswer(t, n.onNode, network, at(ip, 18080), "port", "")
		}
		wantAnswer(t, c.inPod(pod), network, at(n.ip, 18080), "port", "") // hairpin
		if other := c.hosts[0]; other != n {
			wantAnswer(t, other.onNode, network, at(n.ip, 18080), "port", other.ip)
		}
	}
	wantAnswer(t, c.fromOutside, "tcp", at(n.ip, 30081), "port", "") // the service of the same pod
	if c.network != staticRoutes {
		if out, err := n.run("nft", "delete", "table", "inet", "fairlead"); err != nil {
			t.Fatal(err, out)
		}
		wantAnswer(t, c.fromOutside, "tcp", at(n.ip, 18080), "port", outsideV4) // the agent restores the rules
	}
	c.checkHealthy(t)
	return ""
}

func kubeletKilled(t *testing.T, c *cluster) string {
	n := c.hosts[len(c.hosts)-1]
	values := c.webValues()
	values["REPLICAS"] = fmt.Sprint(12 * len(c.hosts))
	c.apply(t, "web.yaml", values)
	t.Cleanup(func() { c.delete(t, "web.yaml") })
	kerneltest.Within(t, time.Minute, func() error {
		if addresses := n.allocated(t); len(addresses) < 3 {
			return fmt.Errorf("%d addresses are allocated", len(addresses))
		}
		return nil
	})
	if out, err := n.run("kill", "-9", n.kubelet, n.containerd); err != nil {
		t.Fatal(err, out)
	}
	atKill := len(n.allocated(t))
	time.Sleep(time.Second)
	n.startContainerd(t)
	n.startKubelet(t)
	c.waitForRollout(t)
	whenReady := len(n.allocated(t))
	c.delete(t, "web.yaml")
	left, removed := len(n.allocated(t)), n.killOrphans(t)
	if out, err := n.run("/mnt/e2e/fairlead", "gc", "--all"); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	return fmt.Sprintf("addresses allocated: %d at the kill, %d when all pods were ready, %d after their deletion, before gc; orphaned processes and namespaces that the test removed: %d",
		atKill, whenReady, left, removed)
}

// allocated returns the addresses that IPAM has allocated on the node.
func (n *kubeNode) allocated(t *testing.T) (addresses []string) {
	t.Helper()
	dir := "/networks/" + kubeNetwork + "/"
	if n.cluster.network != staticRoutes {
		dir = "/fairlead/addresses/default/"
	}
	for _, f := range n.files(t) {
		ip := f[strings.LastIndex(f, "/")+1:]
		if _, err := netip.ParseAddr(ip); err == nil && strings.Contains(f, dir) {
			addresses = append(addresses, ip)
		}
	}
	return addresses
}
