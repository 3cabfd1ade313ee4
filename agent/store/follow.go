package store

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"
)

// Follower receives a store's content and changes. Its methods are called one at a time.
type Follower interface {
	// Reset replaces everything received before with the content as of a revision.
	Reset(entries []Entry, revision int64)
	// Change delivers changes since the last call.
	Change(b Batch)
	// Disconnected says that the store cannot be reached, and why. It is called for each failed attempt, because the reason
	// may change. What was received stays valid as the last known state.
	Disconnected(err error)
	// Reconnected says that the store answers again. Missed changes follow.
	Reconnected()
}

// RestoreFollower is a follower that must know when a Reset does not continue the former history, because the store was
// restored from a backup.
type RestoreFollower interface {
	// Restored is called before such a Reset.
	Restored()
}

// The pause before a retry doubles until the watches last longer than longestPause: a store may answer everything but a
// watch. Each pause is random in its upper half, so that a cluster's agents do not retry all at once.
const (
	firstPause   = 100 * time.Millisecond
	longestPause = 5 * time.Second
)

// lasting is the time after which a watch counts as begun.
const lasting = time.Second

// FollowAll delivers everything below the prefixes, and every change, until the context ends; it then returns the
// context's error. No prefix may begin with another.
//
// After a failure it continues where it was, and lists again only if the store has compacted that revision. All
// prefixes form one stream, but a transaction that changes keys below two prefixes arrives in two parts. A change below
// one prefix may arrive before an earlier change below another.
func FollowAll(ctx context.Context, s Store, prefixes []string, f Follower) error {
	w := &following{Store: s, Follower: f}
	for _, p := range prefixes {
		w.parts = append(w.parts, &part{prefix: p})
	}
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
			} else if w.compacted {
				w.wait(ctx)
			}
			w.compacted = true
		default:
			w.fail(ctx, err)
		}
	}
	return ctx.Err()
}

type following struct {
	Store
	Follower
	mu     sync.Mutex // serializes calls of the follower
	parts  []*part
	listed bool
	away   bool

	pause     time.Duration // before the next retry
	compacted bool          // a watch failed with ErrCompacted, and none lasted since

	lineage  int64 // lineage of the entries that the follower received
	hasReset bool  // the follower has received a Reset
	restored bool  // a list has an older revision than the follower
}

// part is the state of one prefix.
type part struct {
	prefix   string
	revision int64           // the follower has everything up to this revision
	listed   int64           // revision of the list
	keys     map[string]bool // keys in the list; nil once the watch has passed it
}

// once lists, or checks that the store answers, and then watches until that fails.
func (w *following) once(ctx context.Context) error {
	if !w.listed {
		if err := w.list(ctx); err != nil {
			return err
		}
	} else if w.away {
		if _, err := w.Get(ctx, w.parts[0].prefix+"."); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	if w.lineageNow() != w.lineage {
		return ErrRestored
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	began := time.Now()
	ended := make(chan error, len(w.parts))
	for _, p := range w.parts {
		go func() {
			ended <- w.Watch(ctx, p.prefix, p.revision, func(b Batch) error { w.onBatch(p, b); return nil })
		}()
	}
	err := w.firstOf(ended)
	if time.Since(began) > longestPause {
		w.pause, w.compacted = 0, false
	}
	stop()
	for range w.parts[1:] {
		<-ended
	}
	return err
}

// firstOf returns the first end of a watch. The store is back once the watches last: it may answer everything else.
func (w *following) firstOf(ended <-chan error) error {
	select {
	case err := <-ended:
		return err
	case <-time.After(lasting):
	}
	w.mu.Lock()
	w.answered()
	w.mu.Unlock()
	return <-ended
}

// list delivers the whole content. The prefixes' lists have different revisions, so the Reset has the first one's.
func (w *following) list(ctx context.Context) error {
	var all []Entry
	var first int64
	lineage := w.lineageNow()
	for i, p := range w.parts {
		entries, revision, err := w.List(ctx, p.prefix)
		if err != nil {
			return err
		}
		all = append(all, entries...)
		w.restored = w.restored || revision < p.revision // another watch may have failed first, because of its old revision
		if i == 0 {
			first = revision
		}
		p.revision, p.listed, p.keys = first, revision, nil
		if revision > first {
			p.keys = map[string]bool{}
			for _, e := range entries {
				p.keys[e.Key] = true
			}
		}
	}
	if w.lineageNow() != lineage {
		return ErrRestored // some lists may be from before the restore
	}
	w.answered()
	if r, ok := w.Follower.(RestoreFollower); ok && w.hasReset && (lineage != w.lineage || w.restored) {
		r.Restored()
	}
	w.restored = false
	w.lineage, w.hasReset = lineage, true
	w.Reset(all, first)
	w.listed = true
	return nil
}

// lineageNow returns the store's lineage, or 0 if a store cannot be restored from a backup.
func (w *following) lineageNow() int64 {
	if l, ok := w.Store.(Lineager); ok {
		return l.Lineage()
	}
	return 0
}

// onBatch delivers a batch from a watch.
func (w *following) onBatch(p *part, b Batch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answered()
	p.revision = b.Revision
	if b = p.news(b); len(b.Events) > 0 {
		w.Change(b)
	}
}

// news returns the events of a batch that the list did not contain. Of events before the list, only deletions count:
// the follower may know the key from another source.
func (p *part) news(b Batch) Batch {
	if b.Revision > p.listed {
		p.keys = nil
		return b
	}
	b.Events = slices.DeleteFunc(slices.Clone(b.Events), func(e Event) bool { return !e.Deleted || p.keys[e.Key] })
	return b
}

func (w *following) answered() {
	if w.away {
		w.away = false
		w.Reconnected()
	}
}

func (w *following) fail(ctx context.Context, err error) {
	w.away = true
	w.Disconnected(err)
	w.wait(ctx)
}

func (w *following) wait(ctx context.Context) {
	w.pause = min(max(2*w.pause, firstPause), longestPause)
	t := time.NewTimer(w.pause/2 + rand.N(w.pause/2))
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
