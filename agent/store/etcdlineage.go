package store

import (
	"context"
	"sync"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// An etcd restored from a backup does not announce it. Its revisions continue from an older one. A watch from a later
// revision stays silent until they catch up, and then continues as if nothing had happened. The restore shows in
// another cluster ID, or in a smaller revision or raft term.

// Lineager is a store that may be restored to an older state.
type Lineager interface {
	// Lineage returns a number that grows each time the store was found to be restored.
	Lineage() int64
}

// lineage tracks etcd's position.
type lineage struct {
	mu   sync.Mutex
	now  position
	grew chan struct{} // closed when now.restores grows
}

// position is etcd's state according to an answer's header.
type position struct {
	cluster, term uint64
	revision      int64
	restores      int64 // that were found until then
}

func positionOf(h *etcdserverpb.ResponseHeader) position {
	return position{cluster: h.GetClusterId(), term: h.GetRaftTerm(), revision: h.GetRevision()}
}

// before reports whether an answer contradicts an earlier position. A watch's answer may also come from a lagging
// member.
func (p position) before(seen position) bool {
	return seen.cluster != 0 && p.cluster != 0 && (p.cluster != seen.cluster || p.term < seen.term || p.revision < seen.revision)
}

func (l *lineage) seen() position { l.mu.Lock(); defer l.mu.Unlock(); return l.now }

// Lineage implements Lineager.
func (e *etcd) Lineage() int64 { n, _ := e.lineage.state(); return n }

func (l *lineage) state() (count int64, grew <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.grew == nil {
		l.grew = make(chan struct{})
	}
	return l.now.restores, l.grew
}

// observe records the answer to a call. seen is the position before the call. The calls are linearizable, so an older
// answer means that etcd was restored. If another call's answer showed a restore meanwhile, this answer may be from before
// the restore, or show it once more.
func (l *lineage) observe(h *etcdserverpb.ResponseHeader, seen position) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := positionOf(h)
	switch {
	case p.cluster == 0 || seen.restores != l.now.restores:
	case p.before(seen) && p.before(l.now):
		p.restores = l.now.restores + 1
		l.now = p
		if l.grew != nil {
			close(l.grew)
			l.grew = nil
		}
	case p.cluster == l.now.cluster || l.now.cluster == 0:
		l.now = position{p.cluster, max(p.term, l.now.term), max(p.revision, l.now.revision), l.now.restores}
	}
}

// checkRestored asks etcd for its position if a watch's answer may come from a restored etcd. An answer without events
// follows a silence. It is compared with everything seen, because the latest events may not have arrived through a
// watch.
func (e *etcd) checkRestored(ctx context.Context, r clientv3.WatchResponse, after int64) {
	seen := e.lineage.seen()
	than := seen
	if len(r.Events) > 0 {
		than.revision = after
	}
	if !positionOf(r.Header).before(than) {
		return
	}
	_ = e.call(ctx, func(ctx context.Context, c *clientv3.Client) error {
		r, err := c.Get(ctx, e.Prefix, clientv3.WithCountOnly())
		if err == nil {
			e.lineage.observe(r.Header, seen)
		}
		return err
	}) // after a failure, the next answer triggers another check
}
