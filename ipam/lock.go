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

// lockDir takes host-local's own lock on a network's directory: flock(2) on the file "lock" in it. The file is never
// removed.
func lockDir(ctx context.Context, dir string, create bool) (*os.File, error) {
	path := filepath.Join(dir, "lock")
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
	return f, nil
}
