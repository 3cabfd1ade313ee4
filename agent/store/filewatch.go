package store

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Polling intervals of a watch. pollUnwoken applies on hosts that have no inotify instances left.
const (
	pollEvery   = time.Second
	pollUnwoken = 100 * time.Millisecond
)

func (f *file) Watch(ctx context.Context, prefix string, after int64, do func(Batch) error) error {
	wake, stop := f.wakes()
	defer stop()
	lineage := f.Lineage()
	for {
		batches, err := f.changes(ctx, prefix, after, lineage)
		if err != nil {
			return err
		}
		for _, b := range batches {
			if err := do(b); err != nil {
				return err
			}
			after = b.Revision
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-f.closed:
			return fmt.Errorf("the store %s: %w", f.path, os.ErrClosed)
		case <-wake:
		}
	}
}

// Lineage implements Lineager.
func (f *file) Lineage() int64 { f.mu.Lock(); defer f.mu.Unlock(); return f.state.lineage }

func (f *file) changes(ctx context.Context, prefix string, after, lineage int64) ([]Batch, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.fresh(ctx); err != nil {
		return nil, err
	}
	if f.state.lineage != lineage {
		return nil, ErrRestored
	}
	return f.state.since(prefix, after)
}

// wakes returns a channel that receives when the file may have changed.
func (f *file) wakes() (wake <-chan struct{}, stop func()) {
	out, done := make(chan struct{}, 1), make(chan struct{})
	w, err := fsnotify.NewWatcher()
	if err == nil {
		err = w.Add(filepath.Dir(f.path))
	}
	every := pollEvery
	var events chan fsnotify.Event
	var errs chan error
	if err != nil {
		every = pollUnwoken
	} else {
		events, errs = w.Events, w.Errors
	}
	go func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-done:
				if w != nil {
					w.Close()
				}
				return
			case e := <-events:
				if e.Name != f.path || e.Op == fsnotify.Chmod {
					continue
				}
			case <-errs:
			case <-tick.C:
			}
			select {
			case out <- struct{}{}:
			default:
			}
		}
	}()
	return out, func() { close(done) }
}
