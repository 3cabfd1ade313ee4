package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/agent/store"
)

// testCounters checks that concurrent writers that increment the same keys lose no update.
func testCounters(t *testing.T, open func(testing.TB) store.Store) {
	ctx := Context(t)
	const workers, rounds = 8, 25
	Put(t, open(t), "count/a", "0")
	var all sync.WaitGroup
	for range workers {
		s := open(t)
		all.Go(func() {
			for range rounds {
				if err := count(ctx, s, "count/a"); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	want(t, open(t), "count/a", strconv.Itoa(workers*rounds))
}

func count(ctx context.Context, s store.Store, key string) error {
	for {
		e, err := s.Get(ctx, key)
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(string(e.Value))
		if err != nil {
			return err
		}
		_, err = s.Commit(ctx, store.Op{Key: key, Value: []byte(strconv.Itoa(n + 1)), Expect: e.Revision})
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
}

// testTokens moves tokens between keys, two at a time. A watcher never sees a token twice or not at all, and all exist
// in the end.
func testTokens(t *testing.T, open func(testing.TB) store.Store) {
	ctx, s := Context(t), open(t)
	const tokens, places, workers, moves = 4, 12, 4, 25
	for i := range tokens {
		Put(t, s, fmt.Sprintf("token/%d", i), fmt.Sprint(i))
	}
	entries, from, err := s.List(ctx, "token/")
	must(t, err)
	seen := map[string]string{}
	for _, e := range entries {
		seen[e.Key] = string(e.Value)
	}
	watching, stop := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		_ = open(t).Watch(watching, "token/", from, func(b store.Batch) error {
			for _, e := range b.Events {
				if e.Deleted {
					delete(seen, e.Key)
				} else {
					seen[e.Key] = string(e.Value)
				}
			}
			wantTokens(t, seen, tokens)
			if _, done := seen["token/done"]; done {
				stop()
			}
			return nil
		})
	}()
	var all sync.WaitGroup
	for range workers {
		s := open(t)
		all.Go(func() {
			for range moves {
				if err := move(ctx, s, places); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	Put(t, s, "token/done", "")
	<-watched
	stop()
	delete(seen, "token/done")
	wantTokens(t, seen, tokens)
}

func wantTokens(t testing.TB, seen map[string]string, n int) {
	t.Helper()
	have := map[string]bool{}
	for _, v := range seen {
		if v != "" {
			have[v] = true
		}
	}
	if len(have) != n || len(seen) > n+1 {
		t.Errorf("%d tokens are at %v", n, seen)
	}
}

// move moves a token to a key without one.
func move(ctx context.Context, s store.Store, places int) error {
	for {
		entries, _, err := s.List(ctx, "token/")
		if err != nil {
			return err
		}
		from := entries[rand.IntN(len(entries))]
		to := fmt.Sprintf("token/%d", rand.IntN(places))
		if to == from.Key {
			continue
		}
		_, err = s.Commit(ctx, store.Op{Key: from.Key, Expect: from.Revision}, store.Op{Key: to, Value: from.Value})
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
}
