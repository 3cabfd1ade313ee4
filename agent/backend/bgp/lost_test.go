package bgp_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/backend"
	"github.com/fairlead/fairlead/agent/backend/bgp"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestLost checks that a neighbour without a session is lost after the given time, that one with a session is not, and
// that one whose session ended is lost again.
func TestLost(t *testing.T) {
	t.Parallel()
	port := int(kerneltest.FreePort(t, "127.0.0.7").Port())
	start := func(local, peer, id string, passive bool) *bgp.Node {
		n := &bgp.Node{}
		c := bgp.Config{ASN: 64512, RouterID: netip.MustParseAddr(id), Local: addrs(local), Port: port,
			Neighbours: []bgp.Neighbour{{Address: netip.MustParseAddr(peer), ASN: 64512, Port: port, Passive: passive}}}
		if _, err := n.Reconcile(t.Context(), &c, func() ([]backend.Learned, error) { return nil, nil }); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(n.Stop)
		return n
	}
	is := func(n *bgp.Node, want int) func() error {
		return func() error {
			if lost, _ := n.Lost(0); len(lost) != want {
				return fmt.Errorf("lost are %v, want %d; states %v", lost, want, n.States())
			}
			return nil
		}
	}
	a := start("127.0.0.7", "127.0.0.8", "192.0.2.1", true)
	if lost, next := a.Lost(time.Hour); len(lost) > 0 || next <= 0 || next > time.Hour {
		t.Errorf("within an hour: %v are lost, the next one after %v", lost, next)
	}
	kerneltest.Eventually(t, is(a, 1))
	b := start("127.0.0.8", "127.0.0.7", "192.0.2.2", false)
	kerneltest.Eventually(t, is(a, 0))
	if states := a.States(); states["127.0.0.8"] != "ESTABLISHED" {
		t.Errorf("with a session: states %v", states)
	}
	if _, next := a.Lost(time.Hour); next != 0 {
		t.Errorf("with a session: check again after %v", next)
	}
	b.Stop()
	kerneltest.Eventually(t, is(a, 1))
	if lost, _ := (&bgp.Node{}).Lost(0); len(lost) > 0 {
		t.Errorf("without a speaker: %v are lost", lost)
	}
}
