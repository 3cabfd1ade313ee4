package ipam

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/agent/store/storetest"
)

// slowStore is a store that receives the first change of an address, but does not answer.
type slowStore struct {
	store.Store
	under chan []store.Op // receives that change
}

func (s *slowStore) Commit(ctx context.Context, ops ...store.Op) (int64, error) {
	if slices.ContainsFunc(ops, func(o store.Op) bool { return strings.HasPrefix(o.Key, cluster.AddressesPrefix) }) {
		s.under <- ops
		<-ctx.Done()
		return 0, errors.Join(store.ErrUnavailable, ctx.Err())
	}
	return s.Store.Commit(ctx, ops...)
}

// TestCommitAfterRestart restarts the agent while the store has not answered a claim. The store does it once the
// container is gone, and refuses: otherwise the address would have no holder.
func TestCommitAfterRestart(t *testing.T) {
	t.Parallel()
	m, open := newMember(t, "a"), emptyStore(t)
	slow := &slowStore{under: make(chan []store.Op)}
	m.start(func() (store.Store, error) {
		var err error
		slow.Store, err = open()
		return slow, err
	})
	conf := whereaboutsOf(`"range": "192.168.0.0/24"`)
	added := make(chan int)
	go func() {
		code, _ := m.plugin("whereabouts", call{verb: "ADD", id: "c1", conf: conf})
		added <- code
	}()
	late := <-slow.under
	m.stop()
	if code := <-added; code == 0 {
		t.Error("the ADD succeeded without an answer from the store")
	}
	m.start(open)
	if code, out := m.plugin("whereabouts", call{verb: "DEL", id: "c1", conf: conf}); code != 0 {
		t.Errorf("DEL: %s", out)
	}
	s, err := open()
	must(t, err)
	defer s.Close()
	if _, err := s.Commit(storetest.Context(t), late...); !errors.Is(err, store.ErrConflict) {
		t.Errorf("the late change: %v, want a conflict", err)
	}
	left, _, err := s.List(storetest.Context(t), cluster.AddressesPrefix)
	must(t, err)
	if len(left) > 0 {
		t.Errorf("nobody holds %s", left[0].Value)
	}
}
