package ipam

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPlacesStay checks places in the index that earlier versions chose. An upgrade reads their index.
func TestPlacesStay(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]uint32{"a": 21761, "container eth0": 8982, "10.1.0.2": 28292} {
		tab := &table{slots: 1 << 16}
		if got := tab.home(textKey(name)); got != want {
			t.Errorf("the home of %s is %d, want %d", name, got, want)
		}
	}
}

// TestIndexSize checks that an index of another size is invalid before anything is read from it.
func TestIndexSize(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	allocate(t, dir, Options{}, Owner{"a", "eth0"}, setOf(t, "10.1.0.0/24"))
	path := filepath.Join(dir, ".fairlead", "net", "index")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int64{info.Size(), info.Size() + 1, info.Size() - 1, info.Size() + 4096} {
		if err := os.Truncate(path, size); err != nil {
			t.Fatal(err)
		}
		x, err := openIndex(path)
		if size == info.Size() && err != nil || size != info.Size() && !errors.Is(err, errInvalidIndex) {
			t.Errorf("with %d of %d bytes: %v", size, info.Size(), err)
		}
		if err == nil {
			x.close()
		}
	}
}

// TestUndoFails checks that an address that cannot be freed after a failed allocation is an error.
func TestUndoFails(t *testing.T) {
	t.Parallel()
	dir, o := t.TempDir(), Owner{"a", "eth0"}
	with(t, dir, Options{}, func(s *Store) {
		ips, err := s.Allocate(o, setOf(t, "10.1.0.0/24"), nil)
		if err != nil {
			t.Fatal(err)
		}
		file := s.dir.file(ips[0].Address.Addr())
		if err := errors.Join(os.Remove(file), os.MkdirAll(file+"/below", 0o700)); err != nil {
			t.Fatal(err)
		}
		if err := s.undo(o, ips); err == nil || !strings.Contains(err.Error(), ips[0].Address.Addr().String()) {
			t.Errorf("got %v", err)
		}
		if err := s.undo(o, []IP{{Address: netip.MustParsePrefix("10.1.0.9/24")}}); err != nil {
			t.Errorf("a free address: %v", err)
		}
	})
}
