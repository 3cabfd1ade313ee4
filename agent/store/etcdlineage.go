package store

import (
	"context"
	"sync"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// An etcd that is restored from a backup says nothing of it: its revisions go on from
// an earlier one, and a watch from a later one is silent until they are there, and goes
// on from then as if nothing had been. It is known by what cannot be otherwise: a
// cluster of another number, a revision or a term of its raft that is smaller.

// Lineager is a store that can be set back to what it was.
type Lineager interface {
	// Lineage grows each time the store is found not to go on from what it said.
	Lineage() int64
}

// lineage is what etcd has said of itself.
type lineage struct {
	mu    sync.Mutex
	now   past
	count int64
	grew  chan struct{} // closed when count grows
}

// past is what an answer says of where etcd stands.
type past struct {
	cluster, term uint64
	revision      int64
}

func pastOf(h *etcdserverpb.ResponseHeader) past {
	return past{h.GetClusterId(), h.GetRaftTerm(), h.GetRevision()}
}

// before tells whether an answer is of an etcd that has not been where another was. A
// watch's answer may be of a member that lags.
func (p past) before(seen past) bool {
	return seen.cluster != 0 && p.cluster != 0 && (p.cluster != seen.cluster || p.term < seen.term || p.revision < seen.revision)
}

func (l *lineage) seen() past { l.mu.Lock(); defer l.mu.Unlock(); return l.now }

// Lineage grows when etcd was set back.
func (e *etcd) Lineage() int64 { n, _ := e.past.state(); return n }

func (l *lineage) state() (count int64, grew <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.grew == nil {
		l.grew = make(chan struct{})
	}
	return l.count, l.grew
}

// note takes the answer of a call before which something was seen. Such calls are
// linearizable: their answers are never of before that.
func (l *lineage) note(h *etcdserverpb.ResponseHeader, seen past) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := pastOf(h)
	switch {
	case p.cluster == 0:
	case p.before(seen) && p.before(l.now):
		l.now = p
		l.count++
		if l.grew != nil {
			close(l.grew)
			l.grew = nil
		}
	case p.cluster == l.now.cluster || l.now.cluster == 0:
		l.now = past{p.cluster, max(p.term, l.now.term), max(p.revision, l.now.revision)}
	}
}

// makeSure asks etcd itself where it stands, when a watch from a revision has an answer
// that may be of one that was set back. One without events comes after a silence: it is
// held against all that was seen, as the last of it may never have come by a watch.
func (e *etcd) makeSure(ctx context.Context, r clientv3.WatchResponse, after int64) {
	seen := e.past.seen()
	than := seen
	if len(r.Events) > 0 {
		than.revision = after
	}
	if !pastOf(r.Header).before(than) {
		return
	}
	_ = e.call(ctx, func(ctx context.Context, c *clientv3.Client) error {
		r, err := c.Get(ctx, e.Prefix, clientv3.WithCountOnly())
		if err == nil {
			e.past.note(r.Header, seen)
		}
		return err
	}) // what could not be asked is asked again at the next answer
}
