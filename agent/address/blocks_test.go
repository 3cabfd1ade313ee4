package address

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/agent/store/storetest"
	"github.com/fairlead/fairlead/ipam"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// claimGate is a store that checks, whenever its manager claims a block, that nothing else in the manager can claim one.
type claimGate struct {
	store.Store
	t      *testing.T
	m      atomic.Pointer[Manager]
	claims atomic.Int32
}

func (g *claimGate) Commit(ctx context.Context, ops ...store.Op) (int64, error) {
	if m := g.m.Load(); m != nil && strings.HasPrefix(ops[0].Key, cluster.BlocksPrefix) {
		g.claims.Add(1)
		if m.blocks.TryLock() {
			m.blocks.Unlock()
			g.t.Errorf("while %s is claimed, the node can claim another block", ops[0].Key)
		}
	}
	return g.Store.Commit(ctx, ops...)
}

// TestOneBlockForManyContainers starts many containers at once on a node whose block is full. The node claims one block
// for all of them.
func TestOneBlockForManyContainers(t *testing.T) {
	t.Parallel()
	b := newBed(t, `{"subnets": [{"cidr": "10.244.0.0/24", "block": 28}]}`)
	g := &claimGate{t: t}
	m, stop := b.node("a", func(o *Options) { g.Store, o.Store = o.Store, g })
	kerneltest.Until(t, func() bool { return len(blocks(m)) == 1 })
	stop() // nothing is prefetched from now on
	g.m.Store(m)
	subnet := netip.MustParsePrefix("10.244.0.0/24")
	set, err := local.Subnet{CIDR: subnet}.Ranges(blocks(m)[0])
	must(t, err)
	for i := 0; m.freeAddresses(t, subnet) > 0; i++ {
		hold(t, m, ipam.Owner{ContainerID: fmt.Sprint("c", i), IfName: "eth0"}, set...)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := m.needFree(storetest.Context(t), "default", subnet); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := len(blocks(m)); n != 2 || g.claims.Load() != 1 {
		t.Errorf("the node has %d blocks after %d claims: want 2 after 1", n, g.claims.Load())
	}
	// A claim in advance takes the same lock.
	set, err = local.Subnet{CIDR: subnet}.Ranges(blocks(m)[1])
	must(t, err)
	for i := 0; m.freeAddresses(t, subnet) > 0; i++ {
		hold(t, m, ipam.Owner{ContainerID: fmt.Sprint("d", i), IfName: "eth0"}, set...)
	}
	must(t, m.reconcile(storetest.Context(t)))
	if n := len(blocks(m)); n != 3 || g.claims.Load() != 2 {
		t.Errorf("the node has %d blocks after %d claims: want 3 after 2", n, g.claims.Load())
	}
}

// freeAddresses returns the number of this node's free addresses of a subnet.
func (m *Manager) freeAddresses(t *testing.T, subnet netip.Prefix) int {
	t.Helper()
	for _, w := range m.wants() {
		if w.subnet.CIDR == subnet {
			return m.free(w)
		}
	}
	t.Fatalf("the node does not use %s", subnet)
	return 0
}

// TestOverlappingNetworks checks that containers of two networks in the hosts' namespace get different addresses, also if an
// administrator makes the networks overlap with kubectl.
func TestOverlappingNetworks(t *testing.T) {
	t.Parallel()
	b := newBed(t, `{"subnets": [{"cidr": "10.244.0.0/24", "block": 26}]}`)
	s := b.open(t)
	storetest.Put(t, s, "networks/early", `{"subnets": [{"cidr": "10.99.0.0/25", "block": 26}]}`)
	storetest.Put(t, s, "networks/inside", `{"isolated": true, "vni": 5000, "subnets": [{"cidr": "10.244.0.0/25"}]}`)
	storetest.Put(t, s, "networks/over", `{"subnets": [{"cidr": "10.244.0.0/25", "block": 26}, {"cidr": "10.244.0.128/25", "assign": "cluster"}]}`)
	m, _ := b.node("a")
	kerneltest.Until(t, func() bool { return len(blocks(m)) == 1 })
	ctx := storetest.Context(t)
	must(t, m.Need(ctx, "early", netip.MustParsePrefix("10.99.0.0/25")))
	must(t, m.Need(ctx, "inside", netip.MustParsePrefix("10.244.0.0/25"))) // it has its own namespace
	err := m.Need(ctx, "over", netip.MustParsePrefix("10.244.0.0/25"))
	if want := "network over: its subnet 10.244.0.0/25 overlaps with 10.244.0.0/24 of network default"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a block: %v, want %s", err, want)
	}
	single := local.Span{First: netip.MustParseAddr("10.244.0.130"), Last: netip.MustParseAddr("10.244.0.140")}
	_, err = m.Claim(ctx, local.ClaimArgs{Network: "over", Container: "c", IfName: "eth0", Wants: []local.Want{{Ranges: []local.Span{single}}}})
	if err == nil || !strings.Contains(err.Error(), "overlaps with 10.244.0.0/24 of network default") {
		t.Errorf("an address: %v", err)
	}

	// The default network gets a subnet in which another network has a block.
	more := netip.MustParsePrefix("10.99.0.0/25")
	storetest.Put(t, s, "networks/default", `{"subnets": [{"cidr": "10.244.0.0/24", "block": 26}, {"cidr": "10.99.0.0/25", "block": 26, "name": "more"}]}`)
	kerneltest.Until(t, func() bool { return errors.Is(m.Need(ctx, "default", more), errNoBlock) })
	all, _, err := s.List(ctx, cluster.BlocksPrefix)
	must(t, err)
	had := map[netip.Prefix]string{}
	for _, e := range all {
		_, cidr, err := cluster.ParseBlockKey(e.Key)
		must(t, err)
		if more.Contains(cidr.Addr()) && had[cidr] != "" {
			t.Errorf("%s and %s are the same addresses", had[cidr], e.Key)
		}
		had[cidr] = e.Key
	}
}
