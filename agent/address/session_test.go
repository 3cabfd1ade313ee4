package address

import (
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/agent/store/storetest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestWithoutSession checks that a manager without a session writes no file and nothing to the store, and that it
// continues in a later session.
func TestWithoutSession(t *testing.T) {
	t.Parallel()
	b := newBed(t, twoSubnets)
	var session atomic.Int64
	m, _ := b.node("a", func(o *Options) {
		o.Session = func() (int64, error) {
			if s := session.Load(); s != 0 {
				return s, nil
			}
			return 0, store.ErrUnavailable
		}
	})
	kerneltest.Until(t, func() bool { return ready(m) })
	s := b.open(t)
	before := dump(t, s)
	ctx := storetest.Context(t)
	_, claimErr := m.Claim(ctx, local.ClaimArgs{Network: "default", Container: "c", IfName: "eth0", Wants: []local.Want{{Ranges: []local.Span{{First: netip.MustParseAddr("10.250.0.1"), Last: netip.MustParseAddr("10.250.0.6")}}}}})
	for what, err := range map[string]error{
		"claim": claimErr, "block": m.serveBlock(ctx, local.BlockArgs{Network: "default"}), "files": m.writeFiles(),
	} {
		if !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%s: %v", what, err)
		}
	}
	must(t, m.reconcile(ctx))
	must(t, m.reclaim(ctx))
	if _, err := m.Dir.Read("default"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the node's file exists: %v", err)
	}
	if now := dump(t, s); now != before {
		t.Errorf("the store has %s, want %s", now, before)
	}
	session.Store(1)
	kerneltest.Until(t, func() bool { return len(blocks(m)) == 1 })
}

// TestFormerMachine checks that a machine does not use the blocks and addresses of another machine that had its node
// name, and releases them after the grace period. It adopts blocks from before blocks had a machine.
func TestFormerMachine(t *testing.T) {
	t.Parallel()
	b := newBed(t, twoSubnets)
	s := b.open(t)
	storetest.Put(t, s, "blocks/default/10.244.0.0-28", `{"node":"a","machine":"old","subnet":"10.244.0.0/24"}`)
	storetest.Put(t, s, "blocks/default/10.244.0.16-28", `{"node":"a","subnet":"10.244.0.0/24"}`)
	storetest.Put(t, s, "addresses/default/10.250.0.1", `{"owner":"x eth0","node":"a","machine":"old","container":"x","ifName":"eth0"}`)
	began := time.Now()
	m, _ := b.node("a", func(o *Options) { o.Machine, o.Grace = "new", 3*time.Second })
	gone := func(key string) bool {
		_, err := s.Get(storetest.Context(t), key)
		return errors.Is(err, os.ErrNotExist)
	}
	kerneltest.Until(t, func() bool {
		e, err := s.Get(storetest.Context(t), "blocks/default/10.244.0.16-28")
		var x cluster.Block
		return err == nil && json.Unmarshal(e.Value, &x) == nil && x.Machine == "new"
	})
	for !gone("blocks/default/10.244.0.0-28") || !gone("addresses/default/10.250.0.1") {
		if slices.ContainsFunc(blocks(m), func(p netip.Prefix) bool { return p.String() == "10.244.0.0/28" }) {
			t.Fatal("the node's file has the other machine's block")
		}
		if time.Since(began) > kerneltest.Slow(30*time.Second) {
			t.Fatal("the other machine's block and address are not released")
		}
		time.Sleep(10 * time.Millisecond)
	}
	if after := time.Since(began); after < 3*time.Second {
		t.Errorf("released after %v, want the grace period", after)
	}
}

// dump returns the whole store as text.
func dump(t *testing.T, s store.Store) (text string) {
	t.Helper()
	entries, _, err := s.List(storetest.Context(t), "")
	must(t, err)
	for _, e := range entries {
		text += e.Key + "=" + string(e.Value) + "\n"
	}
	return text
}
