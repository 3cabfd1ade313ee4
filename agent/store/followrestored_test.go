package store_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/agent/store"
)

// restoredStore is restored to an older state once its lists were read. The watch of one prefix fails first, because its
// revision is too old for the restored store, which says nothing about the restore.
type restoredStore struct {
	store.Store
	lists int
}

func (s *restoredStore) List(_ context.Context, prefix string) ([]store.Entry, int64, error) {
	if s.lists++; s.lists <= 2 {
		return []store.Entry{{Key: prefix + "x", Value: []byte("{}"), Revision: 90}}, 100, nil
	}
	return nil, 50, nil
}

func (s *restoredStore) Watch(ctx context.Context, prefix string, after int64, _ func(store.Batch) error) error {
	if prefix == "networks/" && after == 100 {
		return store.ErrCompacted
	}
	<-ctx.Done()
	return ctx.Err()
}

type restoreCounter struct{ resets, restores int }

func (r *restoreCounter) Reset([]store.Entry, int64) { r.resets++ }
func (r *restoreCounter) Change(store.Batch)         {}
func (r *restoreCounter) Disconnected(error)         {}
func (r *restoreCounter) Reconnected()               {}
func (r *restoreCounter) Restored()                  { r.restores++ }

// TestFollowNoticesOlderList checks that a follower is told of a restored store also if a watch ends for another reason.
func TestFollowNoticesOlderList(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		f := &restoreCounter{}
		done := make(chan struct{})
		go func() {
			_ = store.FollowAll(ctx, &restoredStore{}, []string{"blocks/", "networks/"}, f)
			close(done)
		}()
		synctest.Wait()
		cancel()
		<-done
		if f.resets != 2 || f.restores != 1 {
			t.Errorf("%d resets and %d restores, want 2 and 1", f.resets, f.restores)
		}
	})
}
