package docker

import (
	"errors"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/internal/plainfile"
)

// TestFIFOOfState checks that the driver does not wait for the writer of a FIFO in the place of an object's file.
func TestFIFOOfState(t *testing.T) {
	t.Parallel()
	f := folder[reservation]{t.TempDir()}
	if err := syscall.Mkfifo(filepath.Join(f.dir, "r1.json"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := f.read("r1"); !errors.Is(err, plainfile.ErrNotRegular) {
		t.Errorf("got %v", err)
	}
}
