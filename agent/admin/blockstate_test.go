package admin

import (
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/agent/address"
	"github.com/fairlead/fairlead/agent/cluster"
)

// TestBlockStates checks that only the blocks of a node that is neither published nor alive count as those of a removed
// one.
func TestBlockStates(t *testing.T) {
	t.Parallel()
	for want, of := range map[string]struct {
		node             string
		published, alive bool
	}{
		"here":         {"self", true, true},
		"node removed": {"x", false, false},
		"":             {"x", false, true},
	} {
		s := cluster.NewSnapshot()
		s.Networks[cluster.DefaultNetwork] = &cluster.Network{Name: cluster.DefaultNetwork, Subnets: []cluster.Subnet{{CIDR: netip.MustParsePrefix("10.0.0.0/16")}}}
		b := &cluster.Block{Network: cluster.DefaultNetwork, Node: of.node, CIDR: netip.MustParsePrefix("10.0.0.0/26"), Subnet: netip.MustParsePrefix("10.0.0.0/16")}
		s.Blocks[b.Key()] = b
		s.Alive[of.node] = of.alive
		if of.published {
			s.Nodes[of.node] = &cluster.Node{Name: of.node}
		}
		use, err := UseOf(s, "self", &address.LocalState{}, "")
		if err != nil || len(use.Blocks) != 1 || use.Blocks[0].State != want {
			t.Errorf("%+v: %+v, %v, want %q", of, use, err, want)
		}
	}
}
