package store

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"time"
)

// Follower is told what a store says, by one goroutine.
type Follower interface {
	// Reset is all there is as of a revision, in place of what was told before.
	Reset(entries []Entry, revision int64)
	// Change is what happened since.
	Change(b Batch)
	// Away is a store that cannot be reached; what was told stays what is known.
	Away(err error)
	// Back is a store that answers again. What was missed is told after it.
	Back()
}

// Followers tells several, one after the other.
type Followers []Follower

// Reset tells each.
func (l Followers) Reset(entries []Entry, revision int64) {
	for _, f := range l {
		f.Reset(entries, revision)
	}
}

// Change tells each.
func (l Followers) Change(b Batch) {
	for _, f := range l {
		f.Change(b)
	}
}

// Away tells each.
func (l Followers) Away(err error) {
	for _, f := range l {
		f.Away(err)
	}
}

// Back tells each.
func (l Followers) Back() {
	for _, f := range l {
		f.Back()
	}
}

// The pause before a store that failed is asked again: it doubles, and each is drawn
// from its upper half, so that a cluster's agents do not ask all at once.
const (
	firstPause   = 100 * time.Millisecond
	longestPause = 5 * time.Second
)

// Follow tells a follower what is below a prefix, and every change, until the
// context ends, whose error it returns. After a failure it goes on where it was; a
// list is made anew only if the store has forgotten that.
func Follow(ctx context.Context, s Store, prefix string, f Follower) error {
	w := &following{Store: s, prefix: prefix, Follower: f}
	for ctx.Err() == nil {
		err := w.once(ctx)
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, os.ErrClosed):
			return err
		case errors.Is(err, ErrCompacted):
			w.listed = false
			if errors.Is(err, ErrUnavailable) {
				w.fail(ctx, err)
			}
		default:
			w.fail(ctx, err)
		}
	}
	return ctx.Err()
}

type following struct {
	Store
	Follower
	prefix   string
	listed   bool
	revision int64 // up to which the follower knows all
	away     bool
	pause    time.Duration
}

// once lists, or makes sure that the store is there, and watches until that fails.
func (w *following) once(ctx context.Context) error {
	if !w.listed {
		entries, revision, err := w.List(ctx, w.prefix)
		if err != nil {
			return err
		}
		w.answered()
		w.Reset(entries, revision)
		w.listed, w.revision = true, revision
	} else if w.away {
		if _, err := w.Get(ctx, w.prefix+"."); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		w.answered()
	}
	return w.Watch(ctx, w.prefix, w.revision, func(b Batch) error {
		w.answered()
		w.revision = b.Revision
		w.Change(b)
		return nil
	})
}

func (w *following) answered() {
	w.pause = 0
	if w.away {
		w.away = false
		w.Back()
	}
}

func (w *following) fail(ctx context.Context, err error) {
	if !w.away {
		w.away = true
		w.Away(err)
	}
	w.pause = min(max(2*w.pause, firstPause), longestPause)
	t := time.NewTimer(w.pause/2 + rand.N(w.pause/2))
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
