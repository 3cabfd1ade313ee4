package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/contrib/kubernetes"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// The network of the cluster that assigns blocks. A block has 32 addresses of each family.
const (
	blockBits, blockBits6     = 27, 123
	fixedRange, fixedRange6   = "10.211.0.0/24", "fd00:211::/120"
	nodeRange, nodeRange6     = "10.99.1.0/24", "fd00:99:1::/64" // which one Node has from Kubernetes
	requestedIP, requestedIP6 = "10.211.0.77", "fd00:211::77"
)

// blockGrace is the time for which the blocks of a deleted Node stay reserved.
const blockGrace = 10 * time.Second

// blockValues returns the chart's values for blocks of both families, and for addresses that stay with their pods.
func (c *cluster) blockValues() kubernetes.Values {
	return kubernetes.Values{
		"agent":       map[string]any{"grace": blockGrace.String()},
		"podNetworks": map[string]any{"enabled": true},
		"network": map[string]any{"subnets": []any{
			map[string]any{"cidr": podRange, "assign": "block", "block": blockBits},
			map[string]any{"cidr": podRange6, "assign": "block", "block": blockBits6},
			map[string]any{"name": "fixed", "cidr": fixedRange, "assign": "cluster"},
			map[string]any{"name": "fixed", "cidr": fixedRange6, "assign": "cluster"},
		}},
	}
}

// giveRange sets the podCIDRs of a Node, which a network of blocks must ignore. The other Nodes have none.
func (c *cluster) giveRange(t *testing.T, n *kubeNode) {
	t.Helper()
	c.mustKubectl(t, "patch", "node", n.name, "-p", fmt.Sprintf(`{"spec": {"podCIDR": %q, "podCIDRs": [%q, %q]}}`, nodeRange, nodeRange, nodeRange6))
}

// ipBlock is an IPBlock.
type ipBlock struct{ node, network, cidr string }

// ipBlocks returns the blocks of all nodes.
func (c *cluster) ipBlocks(t *testing.T) (list []ipBlock) {
	t.Helper()
	out := c.mustKubectl(t, "get", "ipblocks", "-o", `jsonpath={range .items[*]}{.spec.node} {.spec.network} {.spec.cidr}{"\n"}{end}`)
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) == 3 {
			list = append(list, ipBlock{f[0], f[1], f[2]})
		}
	}
	return list
}

// blocksOf returns the blocks of a node.
func (c *cluster) blocksOf(t *testing.T, node string) []ipBlock {
	t.Helper()
	return slices.DeleteFunc(c.ipBlocks(t), func(b ipBlock) bool { return b.node != node })
}

// store runs the command on the control host, with the cluster's kubeconfig.
func (c *cluster) store(argv ...string) (string, error) {
	return c.control.run(append(append([]string{"/mnt/e2e/fairlead"}, argv...), "--store-kubernetes-kubeconfig="+kubeConfig)...)
}

func (c *cluster) mustStore(t *testing.T, argv ...string) string {
	t.Helper()
	out, err := c.store(argv...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// blocksChecked starts DNS, and runs the checks of "fairlead kubernetes status" from inside every node.
func blocksChecked(t *testing.T, c *cluster) string {
	for _, n := range c.hosts {
		for _, b := range c.blocksOf(t, n.name) {
			if p := netip.MustParsePrefix(b.cidr); !netip.MustParsePrefix(podRange).Contains(p.Addr()) && !netip.MustParsePrefix(podRange6).Contains(p.Addr()) {
				t.Errorf("%s has the block %s, which is outside of the network's subnets", n.name, b.cidr)
			}
		}
	}
	c.startDNS(t)
	t.Cleanup(func() { c.mustKubectl(t, "delete", "-f", "/run/coredns.yaml", "--wait=true", "--cascade=foreground") })
	out, err := c.control.run("/mnt/e2e/fairlead", "kubernetes", "status", "--check", "--kubeconfig="+kubeConfig)
	if err != nil || !strings.Contains(out, "All checks passed") || strings.Contains(out, "-  -") {
		t.Errorf("%v: status printed\n%s", err, out)
	}
	pods := c.startWeb(t, 1)
	for i, from := range pods {
		to := pods[(i+1)%len(pods)]
		wantAnswer(t, c.inPod(from), "tcp", at(to.ips[1], servePort), to.name, from.ips[1])
	}
	return fmt.Sprintf("%d pods, both families", len(pods))
}

// severalBlocks runs more pods on a node than a block has addresses. An administrator releases the additional blocks.
func severalBlocks(t *testing.T, c *cluster) string {
	const replicas = 40
	n := c.hosts[0]
	before := c.blocksOf(t, n.name)
	c.apply(t, "many.yaml", map[string]string{"NODE": n.name, "REPLICAS": fmt.Sprint(replicas)})
	t.Cleanup(func() { c.delete(t, "many.yaml") })
	start := time.Now()
	c.mustKubectl(t, "rollout", "status", "deployment/many", "--timeout=110s")
	took := time.Since(start)
	pods := c.pods(t, "many")
	addresses := differentAddresses(t, pods)
	for _, p := range pods {
		for _, ip := range p.ips {
			wantAnswer(t, c.hosts[1].onNode, "tcp", at(ip, servePort), p.name, "")
		}
	}
	after := c.blocksOf(t, n.name)
	if len(pods) != replicas || addresses != 2*replicas || len(after) < len(before)+2 {
		t.Errorf("%d pods with %d addresses in blocks %v, before them %v", len(pods), addresses, after, before)
	}
	c.delete(t, "many.yaml")
	for _, b := range after {
		if !slices.Contains(before, b) {
			c.mustStore(t, "ipam", "release", b.cidr)
		}
	}
	kerneltest.Within(t, 30*time.Second, func() error {
		if left := c.blocksOf(t, n.name); !slices.Equal(left, before) {
			return fmt.Errorf("%s still has %v, want %v", n.name, left, before)
		}
		return nil
	})
	return fmt.Sprintf("%d pods in %d blocks after %v", len(pods), len(after), took.Round(time.Second))
}

// blocksOfDeletedNode deletes the Node of a machine that has died, and starts another one.
func blocksOfDeletedNode(t *testing.T, c *cluster) string {
	others := c.hosts
	n := c.addNode(t, len(others)+1)
	defer func() { c.hosts = others }()
	fixed := c.startFixed(t, "moving", 1, "", n)[0]
	if fixed.node != n.name {
		t.Fatalf("the pod is on %s", fixed.node)
	}
	lost := c.blocksOf(t, n.name)
	if len(lost) < 2 {
		t.Fatalf("%s has the blocks %v", n.name, lost)
	}
	n.die(t)
	start := time.Now()
	c.mustKubectl(t, "delete", "node", n.name)
	c.hosts = others
	kerneltest.Within(t, time.Minute, func() error {
		if left := c.blocksOf(t, n.name); len(left) != 0 {
			return fmt.Errorf("the deleted node still has %v", left)
		}
		return nil
	})
	free := time.Since(start)
	if free < blockGrace {
		t.Errorf("the blocks of the deleted node were free %v after its deletion, before the grace", free)
	}
	moved, reached := c.waitForMove(t, fixed)
	took := time.Since(start)
	c.wantNotServedTwice(t, moved)
	c.waitForAgents(t, len(others)-1)
	another := c.addNode(t, len(others)+2)
	if len(c.blocksOf(t, another.name)) < 2 {
		t.Errorf("%s has the blocks %v", another.name, c.blocksOf(t, another.name))
	}
	another.die(t)
	c.mustKubectl(t, "delete", "node", another.name)
	c.hosts = others
	c.endFixed(t, "moving")
	kerneltest.Within(t, 2*time.Minute, func() error {
		if left := kerneltest.DiffLines(c.idleKeys, c.storeKeys(t)); len(left) != 0 {
			return errors.New("the store differs from before:\n" + strings.Join(left, "\n"))
		}
		return nil
	})
	return fmt.Sprintf("its blocks were free %v after its deletion, with a grace of %v; a pod with a fixed address was Ready elsewhere and reached after %v, and %v after it was Ready",
		free.Round(time.Second), blockGrace, took.Round(time.Second), reached.Round(10*time.Millisecond))
}

// addNode adds a node to the cluster, and waits until all nodes reach it.
func (c *cluster) addNode(t *testing.T, i int) *kubeNode {
	t.Helper()
	n := c.newNode(t, i)
	n.pods = podRange
	c.loadAgentImage(t, n)
	c.hosts = append(slices.Clone(c.hosts), n)
	c.mustKubectl(t, "wait", "--for=create", "node/"+n.name, "--timeout=60s")
	c.mustKubectl(t, "wait", "--for=condition=Ready", "node/"+n.name, "--timeout=120s")
	c.waitForAgents(t, len(c.hosts)-1)
	return n
}

// die kills the node's kubelet and agent. The pods' processes go on: nobody is left to end them.
func (n *kubeNode) die(t *testing.T) {
	t.Helper()
	if _, err := n.run("kill", "-9", n.kubelet, n.agentProcess(t)); err != nil {
		t.Fatal(err)
	}
}

// commandsWithKubeconfig runs every command for networks, nodes and addresses outside of the nodes, with a kubeconfig.
func commandsWithKubeconfig(t *testing.T, c *cluster) string {
	pods := c.startFixed(t, "db", 1, "", nil)
	ran := 0
	for _, one := range []struct {
		argv string
		want []string // in the output or, with refused, in the error
		fail bool
	}{
		{"node list", []string{"n1", "n2", "n3", c.hosts[0].ip}, false},
		{"node show n1", []string{"n1", c.hosts[0].ip, c.blocksOf(t, "n1")[0].cidr}, false},
		{"node show " + pods[0].node, []string{pods[0].ip}, false},
		{"node remove n1", []string{"kubectl delete node n1"}, true},
		{"network list", []string{"default", podRange, fixedRange6}, false},
		{"network show default", []string{podRange, "assign: cluster"}, false},
		{"network create blue --isolated --subnet 10.9.0.0/16 --dry-run", nil, false},
		{"network show blue", []string{"blue"}, true},
		{"network create blue --isolated --subnet 10.9.0.0/16", nil, false},
		{"network show blue", []string{"10.9.0.0/16", "isolated: true"}, false},
		{"network apply -f /run/blue.yaml --dry-run", nil, false},
		{"network apply -f /run/blue.yaml", nil, false},
		{"network list", []string{"blue", "10.9.0.0/16"}, false},
		{"network delete default", []string{"in use"}, true},
		{"network delete blue", nil, false},
		{"network show blue", []string{"blue"}, true},
		{"ipam show", []string{c.blocksOf(t, "n1")[0].cidr, fixedRange, pods[0].ip, "default/db-0"}, false},
		{"ipam release " + pods[0].ip, []string{"default/db-0"}, true},
		{"ipam release --node n1", []string{"n1"}, true},
		{"ipam release 10.9.0.0/26", []string{"10.9.0.0/26"}, true},
		{"map", []string{"n1", "n2", "n3"}, false},
		{"map --svg -", []string{"<svg", "n3"}, false},
	} {
		c.control.write(t, "/run/blue.yaml", "name: blue\nisolated: true\nnat: true\nsubnets: [{cidr: 10.9.0.0/16}]\n")
		out, err := c.store(strings.Fields(one.argv)...)
		text := out
		if err != nil {
			text = err.Error()
		}
		if one.fail != (err != nil) {
			t.Errorf("fairlead %s: %v\n%s", one.argv, err, out)
		}
		for _, w := range one.want {
			if !strings.Contains(text, w) {
				t.Errorf("fairlead %s: no %q in\n%s", one.argv, w, text)
			}
		}
		ran++
	}
	for _, argv := range []string{"node list", "node show n2", "network list", "network show default", "ipam show", "map"} {
		if out := c.mustStore(t, append(strings.Fields(argv), "--json")...); !json.Valid([]byte(out)) {
			t.Errorf("fairlead %s --json printed\n%s", argv, out)
		}
		ran++
	}
	for _, n := range c.hosts { // on a node, with the node's configuration
		if out, err := n.run("env", "FAIRLEAD_AGENT_NODE="+n.name, "/mnt/e2e/fairlead", "ipam", "check", "--store-kubernetes-kubeconfig="+kubeConfig); err != nil {
			t.Errorf("fairlead ipam check on %s: %v\n%s", n.name, err, out)
		}
		ran++
	}
	c.endFixed(t, "db")
	return fmt.Sprintf("%d commands", ran)
}
