package agent

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/session"
	"github.com/fairlead/fairlead/agent/source"
	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestPublisherWakes checks that the publisher wakes for a changed document and for the first sync, because nothing
// could be written before.
func TestPublisherWakes(t *testing.T) {
	t.Parallel()
	p := &publisher{wake: make(chan struct{}, 1)}
	node := func(version string) *cluster.Node { return &cluster.Node{Name: "a", Version: version} }
	for _, step := range []struct {
		what  string
		do    func()
		wakes bool
	}{
		{"the first document", func() { p.setNode(node("1"), false) }, true},
		{"the same again", func() { p.setNode(node("1"), false) }, false},
		{"the same, after the first sync", func() { p.setNode(node("1"), true) }, true},
		{"the same once more", func() { p.setNode(node("1"), true) }, false},
		{"another version", func() { p.setNode(node("2"), true) }, true},
	} {
		step.do()
		woken := false
		select {
		case <-p.wake:
			woken = true
		default:
		}
		if woken != step.wakes {
			t.Errorf("%s: the publisher was woken: %t, want %t", step.what, woken, step.wakes)
		}
	}
}

// TestAssignVNI checks that a VNI is all that an agent changes of a network, also if the document spells out defaults,
// and that a network without a VNI does not stop the reports that follow.
func TestAssignVNI(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	s := newStore(t)
	const fields = `"backends":[],"direct":false,"isolated":true,"nat":false,"subnets":[{"assign":"","cidr":"FD00::/64","exclude":[]}]`
	for key, value := range map[string]string{"networks/blue": "{" + fields + "}", "networks/default": `{"subnets":[{"cidr":"10.0.0.0/8"}]}`} {
		if _, err := s.Commit(ctx, store.Op{Key: key, Value: []byte(value)}); err != nil {
			t.Fatal(err)
		}
	}
	v := newStoreCache(filepath.Join(t.TempDir(), "snapshot"), func() {}, quietLog())
	go func() { _ = source.Follow(ctx, s, cluster.Followed(), v) }()
	kerneltest.Until(t, v.synced)
	own := session.New(s, session.Identity{Node: "a", Machine: "one", Instance: "1"}, quietLog())
	if err := own.Start(ctx); err != nil {
		t.Fatal(err)
	}
	refused := errors.New("refused")
	var c conditions
	p := &publisher{store: refusing{own.Store(), "networks/blue", refused}, session: own, conf: &config.Config{Node: "a"}, storeCache: v, log: quietLog(), status: newStatus("a"), wanted: &wantedNetworks{}, conditions: &c}
	p.wanted.add("blue")
	p.status.reconciled, p.status.inStore = true, true
	if err := p.once(ctx); !errors.Is(err, refused) || !strings.Contains(err.Error(), "network blue") || len(c.set) != 1 {
		t.Errorf("a VNI that cannot be assigned: %v; the condition was set %d times, want 1", err, len(c.set))
	}
	p.store = own.Store()
	if err := p.once(ctx); err != nil {
		t.Fatal(err)
	}
	e, err := s.Get(ctx, "networks/blue")
	if err != nil {
		t.Fatal(err)
	}
	before, after, found := strings.Cut(string(e.Value), `,"vni":`)
	vni := strings.TrimSuffix(after, "}")
	if before != "{"+fields || !found {
		t.Errorf("the network is %s, want only a VNI added", e.Value)
	}
	if owner, err := s.Get(ctx, "vnis/"+vni); err != nil || string(owner.Value) != "blue" {
		t.Errorf("VNI %s belongs to %q, %v", vni, owner.Value, err)
	}
}

// refusing is a store whose commits of one key fail.
type refusing struct {
	store.Store
	key string
	err error
}

func (f refusing) Commit(ctx context.Context, ops ...store.Op) (int64, error) {
	if slices.ContainsFunc(ops, func(o store.Op) bool { return o.Key == f.key }) {
		return 0, f.err
	}
	return f.Store.Commit(ctx, ops...)
}

// TestNoVNIForInvalidNetwork checks that an agent does not touch a network whose document became invalid. Its last valid
// version stays in effect.
func TestNoVNIForInvalidNetwork(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for _, invalid := range []string{"null", "{}", "[]", `{"subnets":[]}`} {
		s, key := newStore(t), cluster.NetworkKey("blue")
		revision, err := s.Commit(ctx, store.Op{Key: key, Value: []byte(`{"isolated":true,"subnets":[{"cidr":"10.0.0.0/24"}]}`)})
		if err != nil {
			t.Fatal(err)
		}
		v := newStoreCache(filepath.Join(t.TempDir(), "snapshot"), func() {}, quietLog())
		go func() { _ = source.Follow(ctx, s, cluster.Followed(), v) }()
		kerneltest.Until(t, v.synced)
		if revision, err = s.Commit(ctx, store.Op{Key: key, Value: []byte(invalid), Expect: revision}); err != nil {
			t.Fatal(err)
		}
		kerneltest.Until(t, func() bool { return v.revisionOf(key) == revision })
		p := &publisher{store: s, conf: &config.Config{Node: "a"}, storeCache: v, log: quietLog(), wanted: &wantedNetworks{}}
		p.wanted.add("blue")
		if err := p.vnis(ctx); err == nil || !strings.Contains(err.Error(), "assign a VNI to network blue") {
			t.Errorf("%s: %v", invalid, err)
		}
		if e, err := s.Get(ctx, key); err != nil || string(e.Value) != invalid {
			t.Errorf("%s: the network is now %s (%v)", invalid, e.Value, err)
		}
	}
}
