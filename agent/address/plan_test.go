package address

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/store/storetest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestSpread checks that each node begins with its own part of each range, and that all addresses follow.
func TestSpread(t *testing.T) {
	t.Parallel()
	span := local.Span{First: netip.MustParseAddr("10.0.0.0"), Last: netip.MustParseAddr("10.0.0.15")}
	for rank := range uint64(4) {
		all := slices.Collect(spread([]local.Span{span}, rank, 4))
		for i, want := range []uint64{4 * rank, 4*rank + 1, 4*rank + 2, 4*rank + 3} {
			if a := netip.AddrFrom4([4]byte{10, 0, 0, byte(want)}); all[i] != a {
				t.Errorf("node %d: address %d is %s, want %s", rank, i, all[i], a)
			}
		}
		rest := slices.Clone(all[4:])
		slices.SortFunc(rest, netip.Addr.Compare)
		if rest = slices.Compact(rest); len(rest) != 16 {
			t.Errorf("node %d: %d addresses follow, want 16", rank, len(rest))
		}
	}
}

// TestPlan checks that a round releases an address once although its release was noted twice, and that claims in more
// networks than a round checks wait for the next one.
func TestPlan(t *testing.T) {
	t.Parallel()
	b := newBed(t, twoSubnets)
	s := b.open(t)
	m, _ := b.node("a")
	kerneltest.Until(t, func() bool { return m.isReady() == nil })
	ctx := storetest.Context(t)
	want := local.ClaimArgs{Network: "default", Container: "c", IfName: "eth0", Wants: []local.Want{{Ranges: []local.Span{
		{First: netip.MustParseAddr("10.250.0.1"), Last: netip.MustParseAddr("10.250.0.6")}}}}}
	_, err := m.Claim(ctx, want)
	must(t, err)
	gone := local.Release{Network: "default", Container: "c", IfName: "eth0"}
	if r := m.plan(nil, []local.Release{gone, gone}); r.err != nil || len(r.frees) != 1 || len(r.ops) != 1 {
		t.Errorf("two releases of one address: %v, %d freed by %d changes", r.err, len(r.frees), len(r.ops))
	}
	var batch []*claim
	for i := range maxNetworks + 2 {
		network := fmt.Sprint("n", i)
		storetest.Put(t, s, cluster.NetworkKey(network), `{"subnets": [{"cidr": "10.251.0.0/24", "assign": "cluster"}]}`)
		args := want
		args.Network = network
		args.Wants = []local.Want{{Ranges: []local.Span{{First: netip.MustParseAddr("10.251.0.1"), Last: netip.MustParseAddr("10.251.0.6")}}}}
		batch = append(batch, &claim{ClaimArgs: args, ctx: ctx, done: make(chan error, 1)})
	}
	kerneltest.Until(t, func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return len(m.state.snap.Networks) == maxNetworks+3
	})
	r := m.plan(batch, nil)
	if r.err != nil || len(r.later) != 2 || len(r.ops) != maxNetworks {
		t.Errorf("claims in %d networks: %v, %d wait, %d addresses are claimed", len(batch), r.err, len(r.later), len(r.ops))
	}
}
