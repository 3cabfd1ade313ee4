package policy

import (
	"net/netip"
	"slices"
	"testing"
)

// TestPodAddresses checks that a node counts with the addresses that it has in pod networks, whatever is known first, and
// that they go with it.
func TestPodAddresses(t *testing.T) {
	t.Parallel()
	status, tunnel := netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("10.244.2.0")
	for _, first := range []bool{false, true} {
		c := New("a")
		if first {
			c.SetPodAddresses("b", []netip.Addr{tunnel})
		}
		c.SetNode(&Node{Name: "b", Addresses: []netip.Addr{status}})
		if !first {
			c.SetPodAddresses("b", []netip.Addr{tunnel})
		}
		if got := c.nodes["b"].Addresses; !slices.Equal(got, []netip.Addr{status, tunnel}) || len(c.nodeAddrs[tunnel]) != 1 {
			t.Errorf("set first: %v: the node has %v, %d nodes have %s", first, got, len(c.nodeAddrs[tunnel]), tunnel)
		}
		c.SetNode(&Node{Name: "b", Addresses: []netip.Addr{tunnel}}) // its status may have it
		if got := c.nodes["b"].Addresses; len(got) != 1 || len(c.nodeAddrs[tunnel]) != 1 || len(c.nodeAddrs[status]) != 0 {
			t.Errorf("after a change: %v, %v", got, c.nodeAddrs)
		}
		c.SetPodAddresses("b", nil)
		c.DeleteNode("b")
		if len(c.nodeAddrs) != 0 || len(c.plainNodes) != 0 || len(c.podAddrs) != 0 {
			t.Errorf("left are %v, %v, %v", c.nodeAddrs, c.plainNodes, c.podAddrs)
		}
	}
}
