package store_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/agent/store"
)

// changingStore answers nothing. After a minute its reason is another one.
type changingStore struct {
	store.Store
	began time.Time
}

func (s *changingStore) List(context.Context, string) ([]store.Entry, int64, error) {
	if time.Since(s.began) < time.Minute {
		return nil, 0, errors.New("connection refused")
	}
	return nil, 0, errors.New("forbidden")
}

// lastReason is a follower that keeps why the store is away.
type lastReason struct {
	restoreCounter
	err error
}

func (r *lastReason) Disconnected(err error) { r.err = err }

// TestFollowReportsTheCurrentReason checks that a follower knows why the store cannot be reached now, and not only why it
// could not be reached at first.
func TestFollowReportsTheCurrentReason(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		f := &lastReason{}
		_ = store.FollowAll(ctx, &changingStore{began: time.Now()}, []string{"nodes/"}, f)
		if f.err == nil || f.err.Error() != "forbidden" {
			t.Errorf("the store is away because of %v, want forbidden", f.err)
		}
	})
}

// connections is a follower that counts how often the store was away, and back.
type connections struct {
	restoreCounter
	away, back int
}

func (c *connections) Disconnected(error) { c.away++ }
func (c *connections) Reconnected()       { c.back++ }

// TestFollowWithRefusedWatches checks that a store that answers, but refuses watches, is away all the time. A log with a line
// for each attempt hides everything else.
func TestFollowWithRefusedWatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		s := &failingWatchStore{err: errors.New("forbidden")}
		f := &connections{}
		_ = store.FollowAll(ctx, s, []string{"nodes/"}, f)
		if f.away < 100 || f.back != 0 {
			t.Errorf("away %d times, back %d times, want 0", f.away, f.back)
		}
		ctx, cancel = context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		s, f = &failingWatchStore{err: store.ErrUnavailable, after: time.Minute}, &connections{}
		_ = store.FollowAll(ctx, s, []string{"nodes/"}, f)
		if f.away != f.back && f.away != f.back+1 || f.back < 5 {
			t.Errorf("with watches that last: away %d times, back %d times", f.away, f.back)
		}
	})
}
