package address

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/agent/store/storetest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

func addressesIn(t testing.TB, s store.Store) int {
	t.Helper()
	list, _, err := s.List(storetest.Context(t), cluster.AddressesPrefix)
	must(t, err)
	return len(list)
}

// slow is a store that answers commits late or never, but executes them.
type slow struct {
	store.Store
	late   atomic.Bool
	silent atomic.Bool
	done   chan struct{} // signals a commit of an address
}

func (s *slow) Commit(ctx context.Context, ops ...store.Op) (int64, error) {
	revision, err := s.Store.Commit(ctx, ops...)
	switch {
	case !strings.HasPrefix(ops[0].Key, cluster.AddressesPrefix):
	case s.silent.Swap(false):
		return 0, fmt.Errorf("no answer: %w", store.ErrUnavailable)
	case s.late.Swap(false):
		s.done <- struct{}{}
		time.Sleep(100 * time.Millisecond)
	}
	return revision, err
}

func slowNode(t *testing.T) (*slow, *Manager) {
	b := newBed(t, twoSubnets)
	s := &slow{done: make(chan struct{}, 1)}
	m, _ := b.node("a", func(o *Options) { s.Store = o.Store; o.Store = s; o.Grace = time.Hour })
	kerneltest.Until(t, func() bool { return len(blocks(m)) == 1 })
	return s, m
}

// TestCancelledClaimIsReleased checks that a cancelled claim leaves no address, without a DEL.
func TestCancelledClaimIsReleased(t *testing.T) {
	t.Parallel()
	s, m := slowNode(t)
	ctx, cancel := context.WithCancel(context.Background())
	s.late.Store(true)
	go func() { <-s.done; cancel() }()
	_, err := m.Claim(ctx, local.ClaimArgs{Network: "default", Container: "c1", IfName: "eth0", Wants: []local.Want{wants("", false)}})
	if err == nil {
		t.Error("a claim that was given up has an address")
	}
	kerneltest.Until(t, func() bool { return addressesIn(t, s.Store) == 0 })
}

// TestClaimWithUnknownOutcome checks that a claim whose commit has no known outcome leaves no address.
func TestClaimWithUnknownOutcome(t *testing.T) {
	t.Parallel()
	s, m := slowNode(t)
	s.silent.Store(true)
	if ip, err := claimOne(m, "c1", "", wants("", false)); err == nil {
		t.Errorf("got %s of a store that did not answer", ip)
	}
	if s.silent.Load() {
		t.Fatal("no undelivered address was written")
	}
	kerneltest.Until(t, func() bool { return addressesIn(t, s.Store) == 0 })
}

// TestCancelledRepeatKeepsAddress checks that cancelling a repeated claim does not release the address that the
// container already had.
func TestCancelledRepeatKeepsAddress(t *testing.T) {
	t.Parallel()
	s, m := slowNode(t)
	has, err := claimOne(m, "c1", "", wants("", false))
	must(t, err)
	c, err := m.claim(storetest.Context(t), local.ClaimArgs{Network: "default", Container: "c1", IfName: "eth0", Wants: []local.Want{wants("", false)}})
	must(t, err)
	m.delivered(c, false)
	first, err := m.claim(storetest.Context(t), local.ClaimArgs{Network: "default", Container: "c2", IfName: "eth0", Wants: []local.Want{wants("", false)}})
	must(t, err)
	again, err := claimOne(m, "c2", "", wants("", false)) // before the first claim's outcome is known
	if err != nil || again != first.ips[0].String() {
		t.Fatalf("%s and %s: %v", again, first.ips[0], err)
	}
	m.delivered(first, false)
	must(t, m.serve(storetest.Context(t), nil))
	if n := addressesIn(t, s.Store); n != 2 || c.ips[0].String() != has {
		t.Errorf("%d addresses: want those of c1 and c2", n)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.last) != 0 || len(m.unclaimed) != 0 {
		t.Errorf("remembered for ever: %v, %v", m.last, m.unclaimed)
	}
}

// TestUnreadAnswerIsReleased checks that a plugin killed before reading its answer keeps no address.
func TestUnreadAnswerIsReleased(t *testing.T) {
	t.Parallel()
	s, m := slowNode(t)
	run, err := os.MkdirTemp("", "fl")
	must(t, err)
	d := local.Open(t.TempDir(), run)
	l, err := Listen(d.Socket())
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { _ = (&Server{Handlers: m.Handlers()}).Serve(ctx, l); close(done) }()
	t.Cleanup(func() { cancel(); <-done; os.RemoveAll(run) })
	args := func(container string) local.ClaimArgs {
		return local.ClaimArgs{Network: "default", Container: container, IfName: "eth0", Wants: []local.Want{wants("", false)}}
	}
	raw, err := json.Marshal(args("killed"))
	must(t, err)
	line, err := json.Marshal(local.Request{Version: local.ProtocolVersion, Op: local.OpClaim, Args: raw})
	must(t, err)
	conn, err := net.Dial("unix", d.Socket())
	must(t, err)
	_, err = conn.Write(append(line, '\n'))
	must(t, err)
	kerneltest.Until(t, func() bool { return addressesIn(t, s.Store) == 1 })
	time.Sleep(20 * time.Millisecond) // the answer is written by now, or its write fails
	conn.Close()
	var r local.ClaimResult
	must(t, d.Call(ctx, local.OpClaim, args("c1"), &r))
	kerneltest.Until(t, func() bool { return addressesIn(t, s.Store) == 1 })
	e, err := s.Get(ctx, cluster.AddressKey("default", r.IPs[0]))
	if err != nil {
		t.Fatalf("the address of one that read its answer: %v: %s", err, e.Value)
	}
}
