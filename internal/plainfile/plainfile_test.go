//go:build linux

package plainfile_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/internal/plainfile"
)

func TestReadsWhatWasWritten(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, 511, 512, 513, 5000} {
		path := filepath.Join(t.TempDir(), "f")
		want := bytes.Repeat([]byte("x"), size)
		fd, err := plainfile.Open(path, syscall.O_WRONLY|syscall.O_CREAT, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if err := plainfile.WriteAt(fd, want, 0, path); err != nil {
			t.Fatal(err)
		}
		_ = syscall.Close(fd)
		if got, err := plainfile.Read(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes: got %d, %v", size, len(got), err)
		}
	}
	if boot, err := plainfile.Read("/proc/sys/kernel/random/boot_id"); err != nil || len(boot) != 37 {
		t.Errorf("boot ID %q, %v", boot, err)
	}
}

func TestErrorsNameTheFile(t *testing.T) {
	t.Parallel()
	_, err := plainfile.Read("/nonexistent")
	if !errors.Is(err, os.ErrNotExist) || err.Error() != "open /nonexistent: no such file or directory" {
		t.Error(err)
	}
	var p *fs.PathError
	if _, err = plainfile.Read(t.TempDir()); !errors.As(err, &p) || p.Err != syscall.EISDIR {
		t.Error(err)
	}
	if err = plainfile.WriteAt(-1, []byte("x"), 0, "there"); err == nil || err.Error() != "write there: bad file descriptor" {
		t.Error(err)
	}
}

// TestSpecialFiles checks that Read neither waits for a FIFO nor fills the memory with a huge file.
func TestSpecialFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fifo, huge := filepath.Join(dir, "fifo"), filepath.Join(dir, "huge")
	if err := errors.Join(syscall.Mkfifo(fifo, 0o600), os.WriteFile(huge, nil, 0o600), os.Truncate(huge, 1<<40)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]error{fifo: plainfile.ErrNotRegular, "/dev/zero": plainfile.ErrNotRegular, huge: syscall.EFBIG} {
		var p *fs.PathError
		if _, err := plainfile.Read(path); !errors.As(err, &p) || p.Err != want || p.Path != path {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestWrite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	for _, text := range []string{"a longer one", "short"} {
		if err := plainfile.Write(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("%q, %v", got, err)
		}
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if err := plainfile.Write(link, []byte("x"), 0o600); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("by a link: %v", err)
	}
	if err := plainfile.Write(filepath.Join(dir, "none", "f"), nil, 0o600); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a directory: %v", err)
	}
}
