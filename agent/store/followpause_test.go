package store_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/agent/store"
)

// failingWatchStore answers everything, but each watch ends with an error after a time.
type failingWatchStore struct {
	store.Store
	err     error
	after   time.Duration
	watches int
}

func (s *failingWatchStore) Get(context.Context, string) (store.Entry, error) {
	return store.Entry{}, nil
}

func (s *failingWatchStore) List(context.Context, string) ([]store.Entry, int64, error) {
	return nil, 7, nil
}

func (s *failingWatchStore) Watch(ctx context.Context, _ string, _ int64, _ func(store.Batch) error) error {
	if s.watches++; s.watches > 5000 {
		return os.ErrClosed
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(s.after):
		return s.err
	}
}

// TestFollowPausesLongerAfterEachFailedWatch checks that a follower does not flood a store that answers, but refuses
// watches, and that it soon retries a watch that lasted.
func TestFollowPausesLongerAfterEachFailedWatch(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		s        failingWatchStore
		min, max int // watches in 10 minutes
	}{
		"refused":   {failingWatchStore{err: errors.New("forbidden")}, 120, 260},
		"away":      {failingWatchStore{err: store.ErrUnavailable}, 120, 260},
		"compacted": {failingWatchStore{err: store.ErrCompacted}, 120, 260},
		"lasted":    {failingWatchStore{err: store.ErrUnavailable, after: 6 * time.Second}, 98, 100},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				_ = store.FollowAll(ctx, &c.s, []string{"nodes/"}, &restoreCounter{})
				if c.s.watches < c.min || c.s.watches > c.max {
					t.Errorf("%d watches in 10 minutes, want %d to %d", c.s.watches, c.min, c.max)
				}
			})
		})
	}
}
