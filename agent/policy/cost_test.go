package policy

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestNodeEventCost checks that the work for one node's change does not grow with the number of nodes. A rule that denies
// pods has a set of all nodes.
func TestNodeEventCost(t *testing.T) { // not parallel: it counts allocations
	cost := func(nodes int) float64 {
		c := New("n0")
		c.nodeSet(labelSelector{})
		node := func(i int, label string) *Node {
			return &Node{Name: fmt.Sprint("n", i), Labels: map[string]string{"zone": label}, Addresses: []netip.Addr{netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)})}}
		}
		for i := range nodes {
			c.SetNode(node(i, "a"))
		}
		c.clearChanges()
		zones := [2]*Node{node(1, "b"), node(1, "c")}
		n := 0
		return testing.AllocsPerRun(100, func() { c.SetNode(zones[n%2]); n++ })
	}
	few, many := cost(20), cost(2000)
	if many > few+5 {
		t.Errorf("the change of a node allocates %v times with 20 nodes, and %v times with 2000", few, many)
	}
}

// TestUnchangedObjects checks that objects of which only the status changed cost nothing: kubelets report it all the time.
func TestUnchangedObjects(t *testing.T) {
	t.Parallel()
	c := New("a")
	c.SetNamespace("shop", nil)
	node := func() *Node {
		return &Node{Name: "b", Labels: map[string]string{"zone": "a"}, Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.2")}}
	}
	pod := func(node string) *Endpoint {
		return &Endpoint{Namespace: "shop", Name: "web-" + node, Node: node, Labels: map[string]string{"app": "web"}, Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.2")}}
	}
	c.SetNode(node())
	c.SetEndpoint(pod("a"))
	c.SetEndpoint(pod("b"))
	first, local, remote := c.nodes["b"], c.endpoints.byKey["shop/web-a"], c.endpoints.byKey["shop/web-b"]
	c.SetNode(node())
	c.SetEndpoint(pod("a"))
	c.SetEndpoint(pod("b"))
	if c.nodes["b"] != first || c.endpoints.byKey["shop/web-a"] != local || c.endpoints.byKey["shop/web-b"] != remote {
		t.Error("an unchanged object is taken for a change")
	}
	changed := pod("b")
	changed.Labels = map[string]string{"app": "db"}
	if c.SetEndpoint(changed); c.endpoints.byKey["shop/web-b"].Labels["app"] != "db" {
		t.Error("a changed object is not")
	}
}

// TestAnnotatedAddressesAreBounded checks that the author of a pod cannot fill the sets of all nodes with addresses.
func TestAnnotatedAddressesAreBounded(t *testing.T) {
	t.Parallel()
	var many []string
	for i := range 20000 {
		many = append(many, fmt.Sprintf(`"10.%d.%d.%d"`, i>>16, i>>8&255, i&255))
	}
	p := &corev1.Pod{}
	for _, key := range []string{"", `, "fairlead.io/isolated-network": "blue"`} {
		p.Annotations = map[string]string{networkStatus: `[{"ips": [` + strings.Join(many, ",") + `]` + key + `}, {"ips": ["10.9.9.9"]}]`}
		e := FromPod(p)
		if n := len(e.Addresses) + len(e.Isolated["blue"]); n != mostAnnotated {
			t.Errorf("%s: the pod has %d addresses, want %d", key, n, mostAnnotated)
		}
	}
}
