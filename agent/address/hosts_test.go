package address

import (
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/source"
	"github.com/fairlead/fairlead/agent/store"
)

// TestHostsInBlocks checks that no node claims a block that contains a node's own address, except in isolated networks,
// whose blocks are in their own namespaces.
func TestHostsInBlocks(t *testing.T) {
	t.Parallel()
	for isolated, want := range map[string]int{"": 14, `"isolated": true, `: 16} {
		m := NewManager(Options{Node: "a"})
		m.Reset(source.DecodeAll([]store.Entry{
			{Key: "networks/n", Value: []byte(`{` + isolated + `"subnets": [{"cidr": "10.0.0.0/24", "block": 28}]}`), Revision: 1},
			{Key: "nodes/a", Value: []byte(`{"addresses": ["10.0.0.20/24"]}`), Revision: 2},
			{Key: "nodes/b", Value: []byte(`{"addresses": ["10.0.0.250/24", "2001:db8::1/64"]}`), Revision: 3},
		}), 3)
		taken := map[netip.Prefix]bool{}
		for {
			b, err := m.freeBlock("n", m.state.snap.Networks["n"].Subnets[0])
			if err != nil {
				break
			}
			if b.Contains(netip.MustParseAddr("10.0.0.20")) && isolated == "" {
				t.Fatalf("%s, in which node a is, is free", b)
			}
			taken[b] = true
			m.state.set(source.Decode(store.Entry{Key: cluster.BlockKey("n", b), Value: []byte(`{"node": "a"}`), Revision: int64(4 + len(taken))}))
		}
		if len(taken) != want {
			t.Errorf("with %q there are %d free blocks, want %d", isolated, len(taken), want)
		}
	}
}
