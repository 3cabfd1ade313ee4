package attach_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/attach"
)

// TestGCOnFullDisk verifies that a GC on a full disk removes the parts of an attachment one after the other, and so makes
// room. Each plugin of a list removes its own part.
func TestGCOnFullDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with its mounts
		done <- errors.Join(
			syscall.Unshare(syscall.CLONE_NEWNS), syscall.Mount("", "/", "", syscall.MS_PRIVATE|syscall.MS_REC, ""),
			syscall.Mount("test", dir, "tmpfs", 0, "size=64k,mode=700"), gcOnFullDisk(dir))
	}()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func gcOnFullDisk(root string) error {
	d := attach.Open(root)
	r := record(d, owner)
	r.Parts = []attach.Part{{Plugin: "bridge", Done: true}, {Plugin: "portmap", Done: true}}
	if err := create(d, r); err != nil {
		return err
	}
	r.Unlock()
	if err := os.WriteFile(filepath.Join(root, "other"), bytes.Repeat([]byte("x"), 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		return errors.Join(err, errors.New("the disk is not full"))
	}
	for left := 1; left >= 0; left-- {
		listed, err := d.Read(owner)
		if err != nil {
			return err
		}
		taken, reservation, err := d.TakeForGC(listed)
		if err != nil {
			return err
		}
		taken.Parts = taken.Parts[:left]
		if err := d.ReplaceParts(taken, reservation); err != nil {
			return err
		}
		if now, err := d.Read(owner); left > 0 && (err != nil || len(now.Parts) != left) {
			return errors.Join(err, errors.New("the record has another number of parts"))
		}
	}
	if _, err := d.Read(owner); !errors.Is(err, os.ErrNotExist) {
		return errors.Join(err, errors.New("the record remains"))
	}
	return nil
}
