package local

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"

	"github.com/fairlead/fairlead/internal/filelock"
	"github.com/fairlead/fairlead/internal/leanjson"
)

// Release says that a container released its individually assigned addresses of a network.
type Release struct {
	Network   string `json:"network"`
	Container string `json:"container"`
	IfName    string `json:"ifName"`
}

// AppendReleases appends releases to the journal. The agent processes them later, so a DEL needs neither the agent nor
// the store.
func (d Dir) AppendReleases(ctx context.Context, list ...Release) error {
	if len(list) == 0 {
		return nil
	}
	b := []byte("\n") // ends a previous line that a kill may have truncated
	for _, r := range list {
		var err error
		if b, err = leanjson.Append(b, r); err != nil {
			return err
		}
		b = append(b, '\n')
	}
	if err := os.MkdirAll(d.Root(), 0o755); err != nil {
		return fmt.Errorf("create the directory of the cluster's addresses: %w", err)
	}
	// Writers append whole lines in one call, so a shared lock is enough: it only excludes the agent.
	return d.withJournal(ctx, syscall.LOCK_SH, func() error {
		f, err := os.OpenFile(d.journal(), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			return err
		}
		_, err = f.Write(b)
		return errors.Join(err, f.Close())
	})
}

func (d Dir) withJournal(ctx context.Context, how int, do func() error) error {
	lock, err := os.OpenFile(d.journal()+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err == nil {
		defer filelock.Close(lock)
		err = filelock.Until(ctx, lock.Name(), func() (bool, error) {
			err := syscall.Flock(int(lock.Fd()), how|syscall.LOCK_NB)
			if err == syscall.EWOULDBLOCK || err == syscall.EINTR {
				return false, nil
			}
			return err == nil, err
		})
	}
	if err == nil {
		err = do()
	}
	if err != nil {
		return fmt.Errorf("the journal of released addresses: %w", err)
	}
	return nil
}

// TakeReleases returns the journal's releases in order. Until ClearTaken is called, it returns them again, also after a
// kill.
func (d Dir) TakeReleases(ctx context.Context) ([]Release, error) {
	if _, err := os.Stat(d.journal()); err == nil {
		if err := d.withJournal(ctx, syscall.LOCK_EX, d.takeJournal); err != nil {
			return nil, err
		}
	}
	raw, err := os.ReadFile(d.work())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("read the journal of released addresses: %w", err)
	}
	list := parseJournal(raw)
	if raw != nil && len(list) == 0 {
		return nil, d.ClearTaken()
	}
	return list, nil
}

// takeJournal moves the journal to the work file, or appends it to an existing one.
func (d Dir) takeJournal() error {
	before, err := os.ReadFile(d.work())
	if errors.Is(err, os.ErrNotExist) {
		return os.Rename(d.journal(), d.work())
	}
	more, err2 := os.ReadFile(d.journal())
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	if err := Replace(d.work(), slices.Concat(before, more), 0o600); err != nil {
		return err
	}
	return os.Remove(d.journal())
}

// ClearTaken deletes the releases that TakeReleases returned.
func (d Dir) ClearTaken() error {
	if err := os.Remove(d.work()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("delete the journal of released addresses: %w", err)
	}
	return nil
}

func (d Dir) work() string { return d.journal() + ".work" }

// parseJournal parses the lines. It skips truncated ones: their writer never returned success.
func parseJournal(raw []byte) (list []Release) {
	for line := range bytes.Lines(raw) {
		var r Release
		if err := json.Unmarshal(line, &r); err == nil && r.Network != "" && r.Container != "" {
			list = append(list, r)
		}
	}
	return list
}

// PendingReleases returns the releases that the agent has not processed yet.
func (d Dir) PendingReleases() (list []Release, err error) {
	for _, path := range []string{d.work(), d.journal()} {
		raw, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("read the journal of released addresses: %w", err)
		}
		list = append(list, parseJournal(raw)...)
	}
	return list, nil
}
