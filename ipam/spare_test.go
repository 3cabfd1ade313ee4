package ipam

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
)

func inode(t testing.TB, path string) uint64 {
	t.Helper()
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil {
		t.Fatal(path, err)
	}
	return st.Ino
}

// TestSpareFileIsReused checks that a released address's file is reused for the next allocation, with complete contents.
func TestSpareFileIsReused(t *testing.T) {
	t.Parallel()
	dir, sets := t.TempDir(), setOf(t, "10.1.0.0/24")
	long, short := Owner{"a-container-with-a-long-name", "eth0"}, Owner{"c", "e"}
	first := allocate(t, dir, Options{AllRequested: true}, long, sets)
	ino := inode(t, dir+"/net/"+first[0].String())
	releaseAllRequested(t, dir, long)
	second := allocate(t, dir, Options{AllRequested: true}, short, sets)
	if got := inode(t, dir+"/net/"+second[0].String()); got != ino {
		t.Errorf("inode %d: want %d, the released file", got, ino)
	}
	consistent(t, dir)
	if got := held(t, dir); len(got) != 1 || got[second[0]] != short {
		t.Errorf("allocated: %v", got)
	}
}

// TestSpareFilesAreLimited checks that the number of spares is limited, and that host-local's files are not kept.
func TestSpareFilesAreLimited(t *testing.T) {
	t.Parallel()
	dir, sets := t.TempDir(), setOf(t, "10.1.0.0/24")
	mustMkdir(t, dir+"/net")
	mustWrite(t, dir+"/net/10.1.0.200", "third-party\r\neth0")
	var all []Owner
	for i := range maxSpares + 5 {
		all = append(all, Owner{"c", fmt.Sprint("e", i)})
		allocate(t, dir, Options{AllRequested: true}, all[i], sets)
	}
	for _, o := range append(all, Owner{"third-party", "eth0"}) {
		releaseAllRequested(t, dir, o)
	}
	entries, err := os.ReadDir(dir + "/.fairlead/net")
	if err != nil || len(entries) != maxSpares+1 { // and the index
		t.Errorf("%d files in the index directory, %v", len(entries), err)
	}
	consistent(t, dir)
}

// TestInterruptedRelease checks that an address is free if the process is killed right after the file became a spare,
// whatever the index contains.
func TestInterruptedRelease(t *testing.T) {
	t.Parallel()
	dir, sets := t.TempDir(), setOf(t, "10.1.0.0/24")
	o, allRequested := Owner{"cut", "eth0"}, Options{AllRequested: true}
	a := allocate(t, dir, allRequested, o, sets)[0]
	with(t, dir, allRequested, func(s *Store) {
		exact, _, err := s.lookup(o)
		if err != nil || len(exact) != 1 {
			t.Fatal(exact, err)
		}
		if err := errors.Join(s.beginChange(pendingAdd{}), s.removeOrSpare(exact[0])); err != nil {
			t.Fatal(err)
		}
	})
	if again := allocate(t, dir, allRequested, o, sets, a); len(again) != 1 || again[0] != a {
		t.Errorf("allocated again: %v, want %v", again, a)
	}
	consistent(t, dir)
}

// TestInterruptedReuse checks a kill right after a spare was linked into place: the file is now an address and must not
// be overwritten.
func TestInterruptedReuse(t *testing.T) {
	t.Parallel()
	dir, sets := t.TempDir(), setOf(t, "10.1.0.0/24")
	a := allocate(t, dir, Options{}, Owner{"cut", "eth0"}, sets)[0]
	with(t, dir, Options{}, func(s *Store) {
		if err := syscall.Link(s.dir.file(a), s.spare(0)); err != nil {
			t.Fatal(err)
		}
		s.index.header.spares = 1
		if _, ok := s.reuse(Owner{"other", "eth0"}); ok {
			t.Error("an address was written into")
		}
	})
}

func mustMkdir(t testing.TB, path string) {
	t.Helper()
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
}

// TestCursorWithAllRequested checks that the cursor is not written if every address is requested explicitly.
func TestCursorWithAllRequested(t *testing.T) {
	t.Parallel()
	dir, sets := t.TempDir(), setOf(t, "10.1.0.0/24")
	allocate(t, dir, Options{AllRequested: true}, Owner{"c", "eth0"}, sets, addr("10.1.0.9"))
	if _, err := os.Stat(dir + "/net/last_reserved_ip.0"); !os.IsNotExist(err) {
		t.Errorf("%v", err)
	}
	consistent(t, dir)
}

// releaseAllRequested releases with Options.AllRequested, so files are kept.
func releaseAllRequested(t testing.TB, dir string, o Owner) {
	t.Helper()
	with(t, dir, Options{Existing: true, AllRequested: true}, func(s *Store) {
		if _, err := s.Release(o); err != nil {
			t.Fatal(err)
		}
	})
}

// TestNoSpareFilesWithoutAllRequested checks that no files are kept without Options.AllRequested.
func TestNoSpareFilesWithoutAllRequested(t *testing.T) {
	t.Parallel()
	dir, sets := t.TempDir(), setOf(t, "10.1.0.0/24")
	allocate(t, dir, Options{}, Owner{"c", "eth0"}, sets)
	release(t, dir, Owner{"c", "eth0"})
	if entries, err := os.ReadDir(dir + "/.fairlead/net"); err != nil || len(entries) != 1 {
		t.Errorf("the index directory contains %v, %v: want only the index", entries, err)
	}
}
