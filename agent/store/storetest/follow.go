package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// Mirror is a follower that keeps a copy of the store.
type Mirror struct {
	mu     sync.Mutex
	keys   map[string]string
	resets int
	isAway bool
	away   int
	back   int
}

// Reset implements store.Follower.
func (m *Mirror) Reset(entries []store.Entry, _ int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.keys = map[string]string{}
	m.resets++
	for _, e := range entries {
		m.keys[e.Key] = string(e.Value)
	}
}

// Change implements store.Follower.
func (m *Mirror) Change(b store.Batch) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range b.Events {
		if e.Deleted {
			delete(m.keys, e.Key)
		} else {
			m.keys[e.Key] = string(e.Value)
		}
	}
}

// Disconnected implements store.Follower.
func (m *Mirror) Disconnected(error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.isAway {
		m.away++
	}
	m.isAway = true
}

// Reconnected implements store.Follower.
func (m *Mirror) Reconnected() { m.mu.Lock(); m.back++; m.isAway = false; m.mu.Unlock() }

// Keys returns the known keys.
func (m *Mirror) Keys() map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.keys)
}

// Counts returns how often Reset, Away and Back were called.
func (m *Mirror) Counts() (resets, away, back int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.resets, m.away, m.back
}

// WaitAway waits until the store is away, or back. It may have been away before: a slow machine exceeds a time limit.
func (m *Mirror) WaitAway(t testing.TB, want bool) {
	t.Helper()
	kerneltest.Eventually(t, func() error {
		if resets, away, back := m.Counts(); (away > back) != want {
			return fmt.Errorf("the store: listed %d times, away %d times, back %d times", resets, away, back)
		}
		return nil
	})
}

// Has reports whether the mirror has exactly these keys.
func (m *Mirror) Has(keys map[string]string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Equal(m.keys, keys)
}

// Follow follows prefixes until the test ends.
func Follow(t testing.TB, s store.Store, f store.Follower, prefixes ...string) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- store.FollowAll(ctx, s, prefixes, f) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("to follow ended with %v", err)
		}
	})
}

// testFollowAll checks that a follower of several prefixes gets all their keys and no others, also if keys change
// during the list.
func testFollowAll(t *testing.T, open func(testing.TB) store.Store) {
	s, other := open(t), open(t)
	want := map[string]string{}
	written := make(chan struct{})
	go func() {
		defer close(written)
		for i := range 200 {
			key := fmt.Sprintf("several-%d/%d", i%3, i%10)
			e, err := other.Get(Context(t), key)
			op := store.Op{Key: key, Expect: e.Revision, Value: fmt.Append(nil, i)}
			if err == nil && i%2 == 0 {
				op.Value = nil
			}
			if _, err := other.Commit(Context(t), op); err != nil {
				t.Error(err)
				return
			}
			delete(want, key)
			if op.Value != nil && i%3 != 2 {
				want[key] = string(op.Value)
			}
		}
	}()
	var mirrors []*Mirror
	for range 5 {
		m := &Mirror{}
		mirrors = append(mirrors, m)
		Follow(t, s, m, "several-0/", "several-1/")
		time.Sleep(5 * time.Millisecond)
	}
	<-written
	for _, m := range mirrors {
		kerneltest.Until(t, func() bool { return m.Has(want) })
		if resets, away, _ := m.Counts(); resets != 1 || away != 0 {
			t.Errorf("%d lists, away %d times", resets, away)
		}
	}
}

func testFollow(t *testing.T, open func(testing.TB) store.Store) {
	s := open(t)
	Put(t, s, "follow/a", "1")
	m := &Mirror{}
	Follow(t, s, m, "follow/")
	want := map[string]string{"follow/a": "1"}
	kerneltest.Until(t, func() bool { return m.Has(want) })
	other := open(t)
	for i := range 20 {
		key := fmt.Sprintf("follow/%d", i)
		want[key] = "v"
		Put(t, other, key, "v")
	}
	kerneltest.Until(t, func() bool { return m.Has(want) })
	if resets, away, _ := m.Counts(); resets != 1 || away != 0 {
		t.Errorf("%d lists, away %d times", resets, away)
	}
}
