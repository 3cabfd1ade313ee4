package podstate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/fairlead/fairlead/internal/filelock"
)

const lockEnding = ".lock"

func (d Dir) lock(k Key) string {
	return filepath.Join(d.pods(), k.ContainerID+separator+k.IfName+lockEnding)
}

// HasLock reports whether an operation on a pod is running, or was killed.
func (d Dir) HasLock(k Key) bool {
	_, err := os.Lstat(d.lock(k))
	return err == nil
}

// Lock locks a pod against other processes, and waits for them until the context ends. On a full disk without a lock file,
// nobody holds the pod, and nobody can add it: Lock then returns without a lock, so that a DEL can make room.
func (d Dir) Lock(ctx context.Context, k Key) (unlock func(), err error) {
	return d.acquire(k, func(f *os.File) error { return filelock.Lock(ctx, int(f.Fd()), f.Name()) })
}

// TryLock is Lock without waiting. Its error is ErrBusy if another process holds the pod.
func (d Dir) TryLock(k Key) (unlock func(), err error) {
	return d.acquire(k, func(f *os.File) error {
		free, err := filelock.Try(int(f.Fd()))
		if err == nil && !free {
			err = ErrBusy
		}
		return err
	})
}

// ErrBusy means that another operation on the pod is running.
var ErrBusy = errors.New("another operation on the pod is running")

// acquire opens and locks the pod's lock file. The holder removes the file when it unlocks, so a process that waited for
// a removed file tries again.
func (d Dir) acquire(k Key, take func(*os.File) error) (unlock func(), err error) {
	path := d.lock(k)
	for {
		f, err := openLock(path)
		if errors.Is(err, syscall.ENOSPC) {
			return func() {}, nil
		}
		if err != nil {
			return nil, fmt.Errorf("lock container %s: %w", k.ContainerID, err)
		}
		if err := take(f); err != nil {
			_ = f.Close()
			return nil, fmt.Errorf("lock container %s: %w", k.ContainerID, err)
		}
		if isCurrent(f) {
			return func() { removeLock(path); _ = filelock.Close(f) }, nil
		}
		_ = filelock.Close(f)
	}
}

// removeLock removes a lock file. It tries once more, because the operation has succeeded, and nobody would repeat it.
func removeLock(path string) {
	if err := os.Remove(path); err != nil {
		_ = os.Remove(path)
	}
}

func openLock(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
}

// isCurrent reports whether an open file is still the one at its path.
func isCurrent(f *os.File) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Stat(f.Name())
	return err == nil && os.SameFile(a, b)
}
