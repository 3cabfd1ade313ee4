package userfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestReplaceKeepsModeAndSymlink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	target, link := filepath.Join(dir, "target.conflist"), filepath.Join(dir, "link.conflist")
	if err := os.WriteFile(target, []byte("old"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("target.conflist", link); err != nil {
		t.Fatal(err)
	}
	if err := Replace(link, []byte("new")); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(target)
	fi, err2 := os.Stat(target)
	if err != nil || err2 != nil || string(raw) != "new" || fi.Mode().Perm() != 0o640 {
		t.Errorf("the target has %q, %v, %v, %v", raw, fi.Mode(), err, err2)
	}
	if to, err := os.Readlink(link); to != "target.conflist" {
		t.Errorf("the link was replaced: %q, %v", to, err)
	}
	if files, _ := os.ReadDir(dir); len(files) != 2 {
		t.Errorf("files were left: %v", files)
	}
	if err := Replace(filepath.Join(dir, "none", "x"), nil); err == nil {
		t.Error("a file in a directory that does not exist was written")
	}
}

// TestReplaceKeepsDevices verifies that a pipe or a device stays: as root, /dev/stdout and /dev/null would become files for
// everybody. An error does not name the temporary file.
func TestReplaceKeepsDevices(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe, link := filepath.Join(dir, "pipe"), filepath.Join(dir, "stdout")
	if err := errors.Join(syscall.Mkfifo(pipe, 0o600), os.Symlink("pipe", link)); err != nil {
		t.Fatal(err)
	}
	r, err := os.OpenFile(pipe, os.O_RDWR, 0) // does not wait for a writer
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, to := range []string{pipe, link} {
		raw := make([]byte, 3)
		if err := Replace(to, []byte("new")); err != nil {
			t.Fatal(err)
		}
		if fi, err := os.Stat(to); err != nil || fi.Mode().Type() != os.ModeNamedPipe {
			t.Fatalf("%s was replaced: %v, %v", to, fi.Mode(), err)
		}
		if _, err := io.ReadFull(r, raw); err != nil || string(raw) != "new" {
			t.Errorf("%s: %q, %v", to, raw, err)
		}
	}
	if err := Replace(dir, nil); err == nil || err.Error() != "write "+dir+": is a directory" {
		t.Error(err)
	}
	if err := Replace(filepath.Join(dir, "none", "x"), nil); err == nil || strings.Contains(err.Error(), ".fairlead-") {
		t.Error(err)
	}
}
