package address

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/agent/store/storetest"
	"github.com/fairlead/fairlead/ipam"
	"github.com/fairlead/fairlead/kernel/kerneltest"
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
	kerneltest.Until(t, func() bool { return ask() == nil })
	kerneltest.Until(t, func() bool { return len(blocksIn(t, s, "blue")) == 1 })
	ctx, cancel := context.WithTimeout(storetest.Context(t), 20*time.Second)
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
	kerneltest.Until(t, func() bool {
		_ = m.reconcile(ctx)
		_, err := m.Dir.Read("blue")
		return errors.Is(err, os.ErrNotExist)
	})
	storetest.Put(t, s, cluster.NetworkKey("blue"), `{"isolated": true, "subnets": [{"cidr": "10.9.0.0/24", "block": 28}]}`)
	kerneltest.Until(t, func() bool { return ask() == nil })
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

// nodeWithBlock starts a node that has one block.
func nodeWithBlock(t *testing.T) (*Manager, store.Store, netip.Prefix) {
	t.Helper()
	b := newBed(t, `{"subnets": [{"cidr": "10.244.0.0/24", "block": 28}]}`)
	m, _ := b.node("a")
	kerneltest.Until(t, func() bool { return len(blocks(m)) == 1 })
	return m, b.open(t), blocks(m)[0]
}

// TestReleaseDuringADD checks that a block is not released while an ADD that may use it has the addresses locked, and
// not after the ADD has allocated one of its addresses.
func TestReleaseDuringADD(t *testing.T) {
	t.Parallel()
	m, s, block := nodeWithBlock(t)
	ctx := storetest.Context(t)
	add, err := ipam.Open(ctx, m.Dir.Addresses(), "default", ipam.Options{})
	must(t, err)
	within, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if free, err := ReleaseBlock(within, s, "default", block); free || err != nil {
		t.Errorf("released during an ADD: %t, %v", free, err)
	}
	kerneltest.Until(t, func() bool { return !slices.Contains(blocks(m), block) })
	_, err = add.Allocate(ipam.Owner{ContainerID: "c", IfName: "eth0"}, []ipam.RangeSet{{{Subnet: block, Start: block.Addr().Next(), End: block.Addr().Next()}}}, nil)
	must(t, errors.Join(err, add.Close()))
	must(t, m.reconcile(ctx))
	must(t, m.reconcile(ctx))
	if !slices.Contains(blocksIn(t, s, "default"), block) {
		t.Error("the block was released although a container holds an address of it")
	}
}

// TestReleaseBeforeFileIsWritten checks that a block is not released while this node's file still contains it.
func TestReleaseBeforeFileIsWritten(t *testing.T) {
	t.Parallel()
	m, s, block := nodeWithBlock(t)
	ctx := storetest.Context(t)
	m.files.Lock() // the disk is slow or full
	within, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if free, err := ReleaseBlock(within, s, "default", block); free || err != nil {
		t.Errorf("released: %t, %v", free, err)
	}
	must(t, m.releaseBlocks(ctx))
	if !slices.Contains(blocksIn(t, s, "default"), block) {
		t.Error("the block was released although plugins may still use it")
	}
	m.files.Unlock()
	kerneltest.Until(t, func() bool { // the node may claim the same block again
		e, err := s.Get(ctx, cluster.BlockKey("default", block))
		return err != nil || !strings.Contains(string(e.Value), "release")
	})
}

// TestReleaseBlockOfUnpublishedNode checks that the block of a node that is alive and has not published itself yet stays: its
// containers may use it. The node is asked to release it.
func TestReleaseBlockOfUnpublishedNode(t *testing.T) {
	t.Parallel()
	b := newBed(t, twoSubnets)
	s := b.open(t)
	block := netip.MustParsePrefix("10.244.0.16/28")
	key := cluster.BlockKey("default", block)
	storetest.Put(t, s, key, `{"node":"x","subnet":"10.244.0.0/24"}`)
	session, err := s.Hold(storetest.Context(t), cluster.AliveKey("x"), []byte("{}"), time.Minute)
	must(t, err)
	ctx, cancel := context.WithTimeout(storetest.Context(t), time.Second)
	defer cancel()
	if free, err := ReleaseBlock(ctx, s, "default", block); free || err != nil {
		t.Errorf("while the node is alive: %v, %v", free, err)
	}
	e, err := s.Get(storetest.Context(t), key)
	if err != nil || !strings.Contains(string(e.Value), `"release":true`) {
		t.Errorf("the block is %s, %v", e.Value, err)
	}
	session.Release()
	if free, err := ReleaseBlock(storetest.Context(t), s, "default", block); !free || err != nil {
		t.Errorf("after its end: %v, %v", free, err)
	}
}
