package attach

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"syscall"

	"github.com/fairlead/fairlead/internal/filelock"
	"github.com/fairlead/fairlead/kernel"
)

// LockList locks an attachment for a runtime that runs a whole list: ADD with the DEL after its failure, or DEL. It waits
// for another runtime until the context's deadline, or a minute. Plugins do not need the lock: of their ADDs of one
// attachment only one begins.
func (d *Dir) LockList(ctx context.Context, o kernel.Owner) (unlock func(), err error) {
	return lockFile(ctx, d.file(o)+".list~")
}

// LockChain is LockList for fairlead-chain, which a runtime may run while it holds its own lock.
func (d *Dir) LockChain(ctx context.Context, o kernel.Owner) (unlock func(), err error) {
	return lockFile(ctx, d.file(o)+".chain~")
}

// ClearChainLock deletes the file of LockChain that a killed process left.
func (d *Dir) ClearChainLock(o kernel.Owner) error {
	path := d.file(o) + ".chain~"
	err := clearLock(path)
	_ = syscall.Rmdir(filepath.Dir(path)) // fails while the directory has other entries
	return err
}

// ClearLocks deletes the files of LockList and LockChain that killed processes left, in all networks.
func (d *Dir) ClearLocks() error {
	var errs []error
	for _, pattern := range []string{"*.list~", "*.chain~"} {
		files, err := filepath.Glob(filepath.Join(d.path, "*", pattern))
		errs = append(errs, err)
		for _, path := range files {
			errs = append(errs, clearLock(path))
			_ = syscall.Rmdir(filepath.Dir(path)) // fails while the directory has other entries
		}
	}
	return errors.Join(errs...)
}

// lockFile locks a file whose name ends in "~": ClearReservations removes the file of a killed process.
func lockFile(ctx context.Context, path string) (unlock func(), err error) {
	for {
		fd, err := openLockFile(path)
		if err == syscall.EAGAIN && ctx.Err() == nil {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("lock the attachment: %w", err)
		}
		if err := filelock.Lock(ctx, fd, path); err != nil {
			_ = filelock.CloseFD(fd)
			return nil, err
		}
		if !same(fd, path) { // the last holder deleted it
			_ = filelock.CloseFD(fd)
			continue
		}
		return func() {
			_ = syscall.Unlink(path)
			_ = filelock.CloseFD(fd)
			_ = syscall.Rmdir(filepath.Dir(path)) // fails while the directory has other entries
		}, nil
	}
}
