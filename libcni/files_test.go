package libcni_test

import (
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/libcni"
)

// TestConfFiles checks that only files and links count. To read a FIFO would wait for ever.
func TestConfFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(filepath.Join(dir, "b.conflist"), nil, 0o600))
	must(os.WriteFile(filepath.Join(dir, "c.txt"), nil, 0o600))
	must(os.Symlink("b.conflist", filepath.Join(dir, "a.conflist")))
	must(os.Mkdir(filepath.Join(dir, "d.conflist"), 0o700))
	must(syscall.Mkfifo(filepath.Join(dir, "e.conflist"), 0o600))
	files, err := libcni.ConfFiles(dir, []string{".conflist"})
	if want := []string{filepath.Join(dir, "a.conflist"), filepath.Join(dir, "b.conflist")}; err != nil || !slices.Equal(files, want) {
		t.Errorf("%q, %v, want %q", files, err, want)
	}
}
