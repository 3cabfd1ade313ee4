package ipam

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/cni"
)

// defaultWait bounds the wait for the lock when the context does not.
const defaultWait = time.Minute

// lockDir takes host-local's own lock of a network's directory: flock(2) on
// the file "lock" in it. The file is never removed.
func lockDir(ctx context.Context, dir string, create bool) (*os.File, error) {
	path := filepath.Join(dir, "lock")
	f, err := openFile(path, syscall.O_RDONLY|syscall.O_CREAT, 0o750)
	if errors.Is(err, os.ErrNotExist) && create {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("make the directory of the network's addresses: %w", err)
		}
		f, err = openFile(path, syscall.O_RDONLY|syscall.O_CREAT, 0o750)
	}
	if err != nil {
		return nil, fmt.Errorf("open the lock of the network's addresses: %w", err)
	}
	if err := flock(ctx, f); err != nil {
		return nil, cni.Errorf(cni.CodeTryAgainLater,
			"lock %s: another process holds it: %w; try again, or see who with: fuser %[1]s", path, err)
	}
	return f, nil
}

// flock waits in the kernel's queue, so that nobody is passed over. If the
// context ends first, whoever still waits lets go of the lock once it gets it.
func flock(ctx context.Context, f *os.File) error {
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
		return nil
	}
	if _, ok := ctx.Deadline(); !ok {
		bounded, cancel := context.WithTimeout(ctx, defaultWait)
		defer cancel()
		ctx = bounded
	}
	got := make(chan error, 1)
	go func() { got <- flockWait(f) }()
	select {
	case err := <-got:
		if err != nil {
			f.Close()
		}
		return err
	case <-ctx.Done():
		go func() { <-got; f.Close() }()
		return ctx.Err()
	}
}

func flockWait(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
