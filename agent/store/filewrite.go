package store

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

func (f *file) Get(ctx context.Context, key string) (Entry, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.fresh(ctx); err != nil {
		return Entry{}, err
	}
	e, ok := f.state.entries[key]
	if !ok {
		return Entry{}, fmt.Errorf("%s: %w", key, os.ErrNotExist)
	}
	return e, nil
}

func (f *file) List(ctx context.Context, prefix string) ([]Entry, int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.fresh(ctx); err != nil {
		return nil, 0, err
	}
	return f.state.list(prefix), f.state.revision, nil
}

func (f *file) Commit(ctx context.Context, ops ...Op) (int64, error) {
	if err := CheckOps(ops); err != nil {
		return 0, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.fresh(ctx); err != nil {
		return 0, err
	}
	err := f.locked(ctx, func() error { return f.commit(ops) })
	return f.state.revision, err
}

// commit appends a transaction. The caller holds the lock.
func (f *file) commit(ops []Op) error {
	if err := f.state.conflicts(ops); err != nil {
		return err
	}
	r := f.state.transaction(ops)
	if len(r.changes) == 0 {
		return nil
	}
	if err := f.append(r.encode()); err != nil {
		return fmt.Errorf("write to the store %s: %w", f.path, err)
	}
	f.state.apply(r)
	if f.offset > compactAt+4*f.state.live {
		// If compaction fails, the next write tries again.
		_ = f.rewrite()
	}
	return nil
}

// append writes a record and syncs it to disk. On failure the record is removed again.
func (f *file) append(b []byte) error {
	_, err := f.log.WriteAt(b, f.offset)
	if err == nil {
		err = f.log.Sync()
	}
	if err != nil {
		_ = f.log.Truncate(f.offset) // remove a torn or unreported record
		return err
	}
	f.offset += int64(len(b))
	return nil
}

// rewrite atomically replaces the file with a snapshot.
func (f *file) rewrite() error {
	temp := f.path + ".new"
	log, err := os.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	b := append([]byte(magic), f.state.snapshot().encode()...)
	if _, err = log.Write(b); err == nil {
		err = log.Sync()
	}
	if err == nil {
		err = os.Rename(temp, f.path)
	}
	if err != nil {
		log.Close()
		os.Remove(temp)
		return err
	}
	f.forget()
	f.log, f.offset = log, int64(len(b))
	return syncDir(filepath.Dir(f.path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// Close releases all held keys.
func (f *file) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-f.closed:
		return nil
	default:
	}
	close(f.closed)
	for key := range f.held {
		f.releaseKey(key)
	}
	f.forget()
	return nil
}
