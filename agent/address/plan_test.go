package address

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/source"
	"github.com/fairlead/fairlead/agent/store"
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
		network, subnet := fmt.Sprint("n", i), fmt.Sprintf("10.251.%d.", i)
		storetest.Put(t, s, cluster.NetworkKey(network), `{"subnets": [{"cidr": "`+subnet+`0/24", "assign": "cluster"}]}`)
		args := want
		args.Network = network
		args.Wants = []local.Want{{Ranges: []local.Span{{First: netip.MustParseAddr(subnet + "1"), Last: netip.MustParseAddr(subnet + "6")}}}}
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

// late is a store whose first answer arrives after a change that it lacks.
type late struct {
	store.Store // nil: only Get is called
	answers     []store.Entry
	change      func()
}

func (l *late) Get(context.Context, string) (store.Entry, error) {
	e := l.answers[0]
	if l.answers = l.answers[1:]; len(l.answers) == 1 {
		l.change()
	}
	if e.Revision == 0 {
		return e, os.ErrNotExist
	}
	return e, nil
}

// TestRefreshKeepsNewerState refreshes a network while the store reports that it was deleted and created again, or
// deleted. The answer from before that does not count.
func TestRefreshKeepsNewerState(t *testing.T) {
	t.Parallel()
	key := cluster.NetworkKey("default")
	old, again := store.Entry{Key: key, Value: []byte(twoSubnets), Revision: 3}, store.Entry{Key: key, Value: []byte(twoSubnets), Revision: 5}
	gone := source.Batch{Revision: 4, Entries: []source.Entry{source.Gone(key, 4)}}
	created := source.Batch{Revision: 5, Entries: []source.Entry{source.Decode(again)}}
	for name, c := range map[string]struct {
		answers []store.Entry
		reports []source.Batch
		want    int64
	}{
		"created again": {[]store.Entry{{}, again}, []source.Batch{gone, created}, 5},
		"deleted":       {[]store.Entry{old, {}}, []source.Batch{gone}, 0},
	} {
		m := NewManager(Options{Node: "a", Dir: local.Open(t.TempDir(), t.TempDir())})
		m.Reset([]source.Entry{source.Decode(old)}, 3)
		m.Store = &late{answers: c.answers, change: func() {
			for _, b := range c.reports {
				m.Change(b)
			}
		}}
		must(t, m.refresh(t.Context(), []string{key}))
		if got := m.state.revision(key); got != c.want || (m.state.snap.Networks["default"] != nil) != (c.want != 0) {
			t.Errorf("%s: the network is %v at revision %d, want %d", name, m.state.snap.Networks["default"], got, c.want)
		}
	}
}

// sequence is a store that makes the changes of a transaction one after another.
type sequence struct {
	store.Store // nil: only Commit is called
	at          []int64
}

func (s *sequence) Commit(_ context.Context, ops ...store.Op) (int64, error) {
	for i, at := range s.at {
		*ops[i].At = at
	}
	return slices.Max(s.at), nil
}

// TestWriteBetweenChanges checks that a manager sees what another node writes between two changes of its transaction.
func TestWriteBetweenChanges(t *testing.T) {
	t.Parallel()
	deleted, created := cluster.AddressKey("default", netip.MustParseAddr("10.250.0.5")), cluster.AddressKey("default", netip.MustParseAddr("10.250.0.6"))
	document := func(key, node string, revision int64) source.Entry {
		return source.Decode(store.Entry{Key: key, Value: []byte(`{"owner":"x eth0","node":"` + node + `"}`), Revision: revision})
	}
	m := NewManager(Options{Node: "a", Dir: local.Open(t.TempDir(), t.TempDir()), Store: &sequence{at: []int64{6, 150}}})
	m.Reset([]source.Entry{document(deleted, "a", 5)}, 90)
	must(t, m.commit(t.Context(), []store.Op{{Key: deleted, Expect: 5}, {Key: created, Value: []byte(`{"owner":"y eth0","node":"a"}`)}}))
	m.Change(source.Batch{Revision: 101, Entries: []source.Entry{document(deleted, "b", 101)}})
	if a := m.state.snap.Addresses[deleted]; a == nil || a.Node != "b" || m.state.revision(deleted) != 101 {
		t.Errorf("the address is %+v at revision %d, want the one of node b at 101", a, m.state.revision(deleted))
	}
	if got := m.state.revision(created); got != 150 {
		t.Errorf("the created address is at revision %d, want 150", got)
	}
}

// refusing is a store that refuses to write a key.
type refusing struct {
	store.Store
	key string
}

func (r *refusing) Commit(ctx context.Context, ops ...store.Op) (int64, error) {
	if slices.ContainsFunc(ops, func(o store.Op) bool { return o.Key == r.key }) {
		return 0, errors.New("not on Fridays")
	}
	return r.Store.Commit(ctx, ops...)
}

// newClaim returns a claim of an address of the network default.
func newClaim(t *testing.T, container, ip string) *claim {
	args := local.ClaimArgs{Network: "default", Container: container, IfName: "eth0", Wants: []local.Want{wants(ip, false)}}
	return &claim{ClaimArgs: args, ctx: storetest.Context(t), done: make(chan error, 1)}
}

// TestRefusedClaim checks that a claim that the store refuses fails neither the other claims nor the releases of its
// round.
func TestRefusedClaim(t *testing.T) {
	t.Parallel()
	s := newBed(t, twoSubnets).open(t)
	m := NewManager(Options{
		Store: &refusing{s, cluster.AddressKey("default", netip.MustParseAddr("10.250.0.5"))}, Node: "a", Dir: local.Open(t.TempDir(), t.TempDir()),
	})
	readStore(t, m, s)
	old := newClaim(t, "old", "10.250.0.7")
	must(t, m.serve(storetest.Context(t), []*claim{old}))
	must(t, m.Dir.AppendReleases(storetest.Context(t), local.Release{Network: "default", Container: "old", IfName: "eth0"}))
	refused, other := newClaim(t, "c1", "10.250.0.5"), newClaim(t, "c2", "10.250.0.6")
	if err := m.serve(storetest.Context(t), []*claim{refused, other}); !contains(err, "not on Fridays") {
		t.Error(err)
	}
	if err := <-refused.done; !contains(err, "not on Fridays") {
		t.Errorf("the refused claim: %v", err)
	}
	if err := <-other.done; err != nil {
		t.Errorf("the other claim: %v", err)
	}
	list, _, err := s.List(storetest.Context(t), cluster.AddressesPrefix)
	if err != nil || len(list) != 1 || list[0].Key != cluster.AddressKey("default", other.ips[0]) {
		t.Errorf("the addresses are %+v, %v, want the one of c2", list, err)
	}
	if pending, err := m.Dir.PendingReleases(); err != nil || len(pending) != 0 {
		t.Errorf("pending releases: %v, %v", pending, err)
	}
}

// TestUndoneClaim checks that a claim is not answered with an address that the manager knows only from a transaction
// that the store undid. The watch has not reported the end of it yet.
func TestUndoneClaim(t *testing.T) {
	t.Parallel()
	s := newBed(t, twoSubnets).open(t)
	m := NewManager(Options{Store: s, Node: "a", Dir: local.Open(t.TempDir(), t.TempDir())})
	revision := readStore(t, m, s)
	key := cluster.AddressKey("default", netip.MustParseAddr("10.250.0.5"))
	undone := store.Entry{Key: key, Value: []byte(`{"owner":"c1 eth0","node":"a","container":"c1","ifName":"eth0"}`), Revision: revision + 1}
	m.Change(source.Batch{Revision: undone.Revision, Entries: []source.Entry{source.Decode(undone)}})
	c := newClaim(t, "c1", "10.250.0.5")
	must(t, m.serve(storetest.Context(t), []*claim{c}))
	must(t, <-c.done)
	if _, err := s.Get(storetest.Context(t), key); err != nil {
		t.Errorf("the container's address is not in the store: %v", err)
	}
}
