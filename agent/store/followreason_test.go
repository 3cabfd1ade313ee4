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
