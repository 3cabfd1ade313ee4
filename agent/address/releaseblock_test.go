package address

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"testing"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/agent/store/storetest"
)

// TestReleaseLastBlock checks that a node claims no new block after an administrator released its last one of an
// isolated network. The network can then be deleted. Its file is deleted too, and a new network of the same name starts
// fresh.
func TestReleaseLastBlock(t *testing.T) {
	t.Parallel()
	b := newBed(t, `{"subnets": [{"cidr": "10.244.0.0/24"}]}`)
	s := b.open(t)
	storetest.Put(t, s, cluster.NetworkKey("blue"), `{"isolated": true, "subnets": [{"cidr": "10.0.0.0/24", "block": 28}]}`)
	m, _ := b.node("a")
	ask := func() error { return m.serveBlock(storetest.Context(t), local.BlockArgs{Network: "blue"}) }
	storetest.Eventually(t, func() bool { return ask() == nil })
	storetest.Eventually(t, func() bool { return len(blocksIn(t, s, "blue")) == 1 })
	ctx, cancel := context.WithTimeout(storetest.Context(t), 4*releaseDelay)
	defer cancel()
	free, err := ReleaseBlock(ctx, s, "blue", blocksIn(t, s, "blue")[0])
	if !free || err != nil {
		t.Fatalf("released: %t, %v", free, err)
	}
	must(t, m.reconcile(ctx)) // a further reconciliation claims no block
	if left := blocksIn(t, s, "blue"); len(left) > 0 {
		t.Fatalf("the node has claimed %v", left)
	}
	e, err := s.Get(ctx, cluster.NetworkKey("blue"))
	must(t, err)
	_, err = s.Commit(ctx, store.Op{Key: e.Key, Expect: e.Revision})
	must(t, err)
	storetest.Eventually(t, func() bool {
		_ = m.reconcile(ctx)
		_, err := m.Dir.Read("blue")
		return errors.Is(err, os.ErrNotExist)
	})
	storetest.Put(t, s, cluster.NetworkKey("blue"), `{"isolated": true, "subnets": [{"cidr": "10.9.0.0/24", "block": 28}]}`)
	storetest.Eventually(t, func() bool { return ask() == nil })
	n, err := m.Dir.Read("blue")
	if err != nil || n.Subnets[0].CIDR.String() != "10.9.0.0/24" {
		t.Errorf("the new network's file: %+v, %v", n, err)
	}
}

// blocksIn returns a network's blocks in the store.
func blocksIn(t *testing.T, s store.Store, network string) (list []netip.Prefix) {
	t.Helper()
	entries, _, err := s.List(storetest.Context(t), cluster.BlocksPrefix)
	must(t, err)
	snap := cluster.NewSnapshot()
	for _, e := range entries {
		snap.Set(e.Key, e.Value)
	}
	for _, b := range snap.Blocks {
		if b.Network == network {
			list = append(list, b.CIDR)
		}
	}
	return list
}
