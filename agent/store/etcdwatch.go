package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// A watch that is silent for quiet requests a progress notification, which must arrive within this time.
const (
	quiet      = 10 * time.Second
	signOfLife = 5 * time.Second
)

func (e *etcd) Watch(ctx context.Context, prefix string, after int64, f func(Batch) error) error {
	c, err := e.client()
	if err != nil {
		return err
	}
	lineage, grew := e.lineage.state()
	// Without this, a member that has no leader would stay silent.
	limited, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	events := e.watchAll(limited, c, prefix, after)
	timer := time.NewTimer(quiet)
	defer timer.Stop()
	asked := false
	for {
		select {
		case h := <-events:
			if err := h.Err(); !h.open || err != nil {
				return e.watchFailed(ctx, prefix, h.open, err)
			}
			asked = false
			timer.Reset(quiet)
			e.checkRestored(ctx, h.WatchResponse, after)
			if e.Lineage() != lineage {
				return e.restored()
			}
			if err := e.batches(h.Events, f); err != nil {
				return err
			}
			if n := len(h.Events); n > 0 {
				after = max(after, h.Events[n-1].Kv.ModRevision)
			}
		case <-grew:
			return e.restored()
		case <-timer.C:
			if asked {
				return e.relist(prefix, fmt.Errorf("etcd at %s has been silent for %v: %w", e.where(), quiet+signOfLife, ErrUnavailable))
			}
			asked = true
			timer.Reset(signOfLife)
			go func() { _ = c.RequestProgress(limited) }() // it blocks until there is a connection
		case <-ctx.Done():
			return ctx.Err()
		case <-e.ctx.Done():
			return fmt.Errorf("etcd at %s: %w", e.where(), os.ErrClosed)
		}
	}
}

func (e *etcd) restored() error { return fmt.Errorf("etcd at %s: %w", e.where(), ErrRestored) }

// watchResult is a response of one of several watches.
type watchResult struct {
	clientv3.WatchResponse
	open bool
}

// watchAll watches all ranges of a prefix.
func (e *etcd) watchAll(ctx context.Context, c *clientv3.Client, prefix string, after int64) <-chan watchResult {
	out := make(chan watchResult)
	tell := func(h watchResult) {
		select {
		case out <- h:
		case <-ctx.Done():
		}
	}
	for _, from := range e.ranges(prefix) {
		// WithFragment splits revisions that are too large for one message; the client joins them. Without it etcd
		// would reject them.
		events := c.Watch(ctx, from, clientv3.WithPrefix(), clientv3.WithRev(after+1), clientv3.WithFragment(), clientv3.WithCreatedNotify())
		go func() {
			for r := range events {
				tell(watchResult{r, true})
			}
			tell(watchResult{})
		}()
	}
	return out
}

// relist turns the failure of one of several watches into ErrCompacted, because one watch's progress says nothing about
// the others.
func (e *etcd) relist(prefix string, err error) error {
	if len(e.ranges(prefix)) > 1 {
		return fmt.Errorf("%w; %w", err, ErrCompacted)
	}
	return err
}

func (e *etcd) watchFailed(ctx context.Context, prefix string, open bool, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err == nil || !open {
		err = errors.Join(err, errors.New("the watch ended"))
	}
	return e.relist(prefix, e.failed(ctx, err))
}

// batches delivers a response's events, one batch per revision.
func (e *etcd) batches(events []*clientv3.Event, f func(Batch) error) error {
	b := Batch{}
	for i, ev := range events {
		b.Revision = ev.Kv.ModRevision
		b.Events = append(b.Events, Event{Entry: e.entry(ev.Kv), Deleted: ev.Type == clientv3.EventTypeDelete})
		if i+1 < len(events) && events[i+1].Kv.ModRevision == b.Revision {
			continue
		}
		if err := f(b); err != nil {
			return err
		}
		b = Batch{}
	}
	return nil
}
