package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/fairlead/fairlead/internal/filelock"
)

// file is a store in a file that all processes of this host share. Writers hold the lock file. Readers take the lock
// only if the file has changed.
type file struct {
	path string

	mu     sync.Mutex
	state  *state
	log    *os.File // the open file that state was read from
	offset int64    // end of the part that was read
	held   map[string]heldFile
	closed chan struct{}
	swept  sweep
}

// compactAt is by how many bytes the file may exceed its content before it is rewritten.
const compactAt = 1 << 20

// File opens the store in a file, and creates it if missing. Several processes may use it at once. A kill loses nothing
// that Commit reported as done, and no reader ever sees part of a transaction.
func File(path string) (Store, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("the store's file: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("create the directory of the store's file: %w", err)
	}
	f := &file{path: path, state: newState(), held: map[string]heldFile{}, closed: make(chan struct{})}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.locked(context.Background(), func() error { return nil }); err != nil {
		f.forget()
		return nil, err
	}
	return f, nil
}

// locked calls do with the file locked and read completely.
func (f *file) locked(ctx context.Context, do func() error) error {
	lock, err := os.OpenFile(f.path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("open the lock of the store: %w", err)
	}
	defer filelock.Close(lock)
	if err := filelock.Lock(ctx, int(lock.Fd()), lock.Name()); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if err := f.catchUp(); err != nil {
		return fmt.Errorf("read the store %s: %w", f.path, err)
	}
	return do()
}

// fresh reads other processes' changes. It takes the lock only if there are any.
func (f *file) fresh(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case <-f.closed:
		return fmt.Errorf("the store %s: %w", f.path, os.ErrClosed)
	default:
	}
	if f.unchanged() && !f.swept.due() {
		return nil
	}
	return f.locked(ctx, func() error { f.sweepHolds(); return nil })
}

// unchanged reports whether the file was read to its end and not replaced.
func (f *file) unchanged() bool {
	var st syscall.Stat_t
	return f.log != nil && syscall.Stat(f.path, &st) == nil && st.Size == f.offset && sameFile(f.log, st)
}

func sameFile(f *os.File, st syscall.Stat_t) bool {
	var open syscall.Stat_t
	return syscall.Fstat(int(f.Fd()), &open) == nil && open.Dev == st.Dev && open.Ino == st.Ino
}

// catchUp reads new records, or the whole file if another process rewrote it. It truncates an incomplete last record,
// which a kill leaves. The caller holds the lock.
func (f *file) catchUp() error {
	if f.unchanged() {
		return nil
	}
	log, err := os.OpenFile(f.path, os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		if f.log != nil {
			return errors.New("it was deleted while in use: stop its users or restore it")
		}
		return f.rewrite()
	}
	if err != nil {
		return err
	}
	var st syscall.Stat_t
	err = syscall.Fstat(int(log.Fd()), &st)
	if err == nil && st.Mode&syscall.S_IFMT != syscall.S_IFREG {
		err = errors.New("it is not a regular file") // reading a FIFO would block
	}
	if err != nil {
		log.Close()
		return err
	}
	if f.log != nil && sameFile(f.log, st) {
		log.Close()
		if st.Size < f.offset {
			return fmt.Errorf("it has %d bytes but had %d: another program truncated it", st.Size, f.offset)
		}
		return f.readOn()
	}
	first := f.log == nil
	f.forget()
	f.log, f.offset = log, 0
	return f.readAll(first)
}

func (f *file) forget() {
	if f.log != nil {
		f.log.Close()
		f.log = nil
	}
}

// readAll reads the file from its beginning: a snapshot, then transactions. On an error it closes the file.
func (f *file) readAll(first bool) (err error) {
	defer func() {
		if err != nil {
			f.forget()
		}
	}()
	if err := f.readMagic(); err != nil {
		return err
	}
	f.offset = int64(len(magic))
	rest, err := io.ReadAll(f.log)
	if err != nil {
		return err
	}
	r, n, err := next(rest)
	if err != nil || r.kind != kindSnapshot {
		return errors.Join(fmt.Errorf("byte %d: cannot read the snapshot: restore the file from a backup", f.offset), err)
	}
	f.state.replace(r, first)
	f.offset += int64(n)
	return f.take(rest[n:])
}

func (f *file) readMagic() error {
	head := make([]byte, len(magic))
	n, err := io.ReadFull(f.log, head)
	head = head[:n]
	switch {
	case err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return err
	case n == 0:
		return errors.New("it is empty: restore it from a backup, or delete it to begin with an empty store")
	case len(bytes.Trim(head, "\x00")) == 0:
		return errors.New("it is damaged, because it begins with zero bytes: restore it from a backup, or delete it to begin with an empty store")
	case string(head) != magic:
		return fmt.Errorf("it is not a Fairlead store: it begins with %q", head)
	}
	return nil
}

// readOn reads appended records.
func (f *file) readOn() error {
	rest, err := io.ReadAll(io.NewSectionReader(f.log, f.offset, 1<<62))
	if err != nil {
		return err
	}
	return f.take(rest)
}

// take applies the records in b, which begins at f.offset.
func (f *file) take(b []byte) error {
	for len(b) > 0 {
		r, n, err := next(b)
		if err == nil && (r.kind != kindTransaction || r.revision <= f.state.revision) {
			err = fmt.Errorf("a record of revision %d after %d", r.revision, f.state.revision)
		}
		if errors.Is(err, errTorn) && !later(b[1:]) {
			return f.log.Truncate(f.offset)
		}
		if err != nil {
			return fmt.Errorf("byte %d is damaged (%w) and intact records follow: restore the file from a backup, or truncate it there", f.offset, err)
		}
		f.state.apply(r)
		f.offset += int64(n)
		b = b[n:]
	}
	return nil
}
