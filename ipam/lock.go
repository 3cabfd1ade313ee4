package ipam

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/internal/filelock"
)

// lockDir takes host-local's own lock on a network's directory: flock(2) on the file "lock" in it. Nobody removes the
// file, except an administrator who empties or replaces the directory.
func lockDir(ctx context.Context, dir string, create bool) (*os.File, error) {
	path := filepath.Join(dir, "lock")
	for {
		f, err := openFile(path, syscall.O_RDONLY|syscall.O_CREAT, 0o750)
		if errors.Is(err, os.ErrNotExist) && create {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return nil, fmt.Errorf("create the directory of the network's addresses: %w", err)
			}
			f, err = openFile(path, syscall.O_RDONLY|syscall.O_CREAT, 0o750)
		}
		if err != nil {
			return nil, fmt.Errorf("open the lock of the network's addresses: %w", err)
		}
		if err := filelock.Lock(ctx, int(f.Fd()), path); err != nil {
			f.Close()
			return nil, cni.Errorf(cni.CodeTryAgainLater, "lock the network's addresses: %w", err)
		}
		if isAt(f, path) {
			return f, nil
		}
		_ = filelock.Close(f) // the lock of a removed file protects nothing
	}
}

// isAt reports whether an open file is still the one at its path.
func isAt(f *os.File, path string) bool {
	var open, named syscall.Stat_t
	err1 := retry(func() error { return syscall.Fstat(int(f.Fd()), &open) })
	err2 := retry(func() error { return syscall.Lstat(path, &named) })
	return err1 == nil && err2 == nil && open.Dev == named.Dev && open.Ino == named.Ino
}
