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

// Rewinder is a follower that has to know when what a Reset says does not follow from
// what was told before: revisions are of another history.
type Rewinder interface {
	// Rewound comes before that Reset.
	Rewound()
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

// Rewound tells each that wants to know.
func (l Followers) Rewound() {
	for _, f := range l {
		if r, ok := f.(Rewinder); ok {
			r.Rewound()
		}
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

// FollowAll tells a follower what is below prefixes, none of which begins with another,
// and every change, until the context ends, whose error it returns. After a failure it
// goes on where it was; a list is made anew only if the store has forgotten that. The
// prefixes are told as one, but what one transaction changed below two of them comes in two parts,
// and what changed below one may come before what was changed earlier below another.
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
	mu     sync.Mutex // one tells the follower at a time
	parts  []*part
	listed bool
	away   bool
	pause  time.Duration

	lineage int64 // of what the follower was told
	told    bool  // it was told all once
}

// part is what is followed of one prefix.
type part struct {
	prefix   string
	revision int64           // up to which the follower knows all
	listed   int64           // that of the list
	keys     map[string]bool // which were in it; nil: all since is known
}

// once lists, or makes sure that the store is there, and watches until that fails.
func (w *following) once(ctx context.Context) error {
	if !w.listed {
		if err := w.list(ctx); err != nil {
			return err
		}
	} else if w.away {
		if _, err := w.Get(ctx, w.parts[0].prefix+"."); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		w.answered()
	}
	if w.lineageNow() != w.lineage {
		return ErrRewound
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, len(w.parts))
	for _, p := range w.parts {
		go func() { ended <- w.Watch(ctx, p.prefix, p.revision, func(b Batch) error { w.heard(p, b); return nil }) }()
	}
	err := <-ended
	stop()
	for range w.parts[1:] {
		<-ended
	}
	return err
}

// list tells all there is. The lists are of revisions that differ, so the follower is
// said to know only what the first of them had.
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
		return ErrRewound // some lists may be of before
	}
	w.answered()
	if r, ok := w.Follower.(Rewinder); ok && w.told && lineage != w.lineage {
		r.Rewound()
	}
	w.lineage, w.told = lineage, true
	w.Reset(all, first)
	w.listed = true
	return nil
}

// lineageNow is 0 of a store that is never set back.
func (w *following) lineageNow() int64 {
	if l, ok := w.Store.(Lineager); ok {
		return l.Lineage()
	}
	return 0
}

// heard tells what a watch saw.
func (w *following) heard(p *part, b Batch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answered()
	p.revision = b.Revision
	if b = p.news(b); len(b.Events) > 0 {
		w.Change(b)
	}
}

// news is what of a batch the list did not say: of what was before it only that a key
// is gone, which the follower may have from elsewhere.
func (p *part) news(b Batch) Batch {
	if b.Revision > p.listed {
		p.keys = nil
		return b
	}
	b.Events = slices.DeleteFunc(slices.Clone(b.Events), func(e Event) bool { return !e.Deleted || p.keys[e.Key] })
	return b
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
