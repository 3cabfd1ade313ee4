package store_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/agent/store/storetest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// asWriter makes the test binary write to a store until it is killed.
const asWriter = "FAIRLEAD_STORE_WRITER"

func TestMain(m *testing.M) {
	if path := os.Getenv(asWriter); path != "" {
		if err := write(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// write commits transactions of three keys and prints each finished one, until it is killed or after the number of
// transactions in commitsVariable.
func write(path string) error {
	s, err := store.File(path)
	if err != nil {
		return err
	}
	ctx := context.Background()
	if _, err := s.Hold(ctx, "alive/writer", nil, time.Second); err != nil {
		return err
	}
	var was int64
	if e, err := s.Get(ctx, "kill/a"); err == nil {
		was = e.Revision
	}
	filler := strings.Repeat("x", 20000) // large enough to trigger compaction now and then
	limit, _ := strconv.Atoi(os.Getenv(commitsVariable))
	for n := 0; limit == 0 || n < limit; n++ {
		var ops []store.Op
		for _, k := range []string{"a", "b", "c"} {
			ops = append(ops, store.Op{Key: "kill/" + k, Value: fmt.Appendf(nil, "%d %s", was, filler), Expect: was})
		}
		if was, err = s.Commit(ctx, ops...); err != nil {
			return err
		}
		fmt.Println(was)
	}
	return s.Close()
}

func openFile(t testing.TB, path string) store.Store {
	t.Helper()
	s, err := store.File(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestFile(t *testing.T) {
	t.Parallel()
	path := t.TempDir() + "/dir/store"
	storetest.Run(t, func(t testing.TB) store.Store { return openFile(t, path) })
}

// TestFileKilled kills a writing process repeatedly. Every reported transaction exists, none exists in part, and its
// held key is released.
func TestFileKilled(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store")
	reports := 0
	for round := range 12 {
		out := killed(t, path, time.Duration(20+7*round)*time.Millisecond, round%2 == 1)
		s := openFile(t, path)
		entries, revision, err := s.List(storetest.Context(t), "kill/")
		if err != nil || len(entries) != 3 && len(entries) != 0 {
			t.Fatalf("round %d: %d entries, %v", round, len(entries), err)
		}
		for _, e := range entries {
			if e.Revision != entries[0].Revision || string(e.Value) != string(entries[0].Value) {
				t.Fatalf("round %d: part of a transaction: %s at %d, %s at %d", round, e.Key, e.Revision, entries[0].Key, entries[0].Revision)
			}
		}
		if reported := lastLine(out); reported != "" {
			reports++
			if told, err := strconv.ParseInt(reported, 10, 64); err != nil || revision < told {
				t.Fatalf("round %d: the store is at %d; the writer was told of %s (%v)", round, revision, reported, err)
			}
		}
		if _, err := s.Get(storetest.Context(t), "alive/writer"); !errors.Is(err, os.ErrNotExist) {
			t.Fatalf("round %d: a dead process holds its key: %v", round, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if reports == 0 {
		t.Error("no process reported a transaction before it was killed")
	}
}

// killed kills a writing process after a time, which begins with its first report if wait is set.
func killed(t *testing.T, path string, after time.Duration, wait bool) string {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asWriter+"="+path)
	out, errs := &kerneltest.Output{}, &strings.Builder{}
	cmd.Stdout, cmd.Stderr = out, errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if wait {
		kerneltest.Until(t, func() bool { return strings.Contains(out.String(), "\n") })
	}
	time.Sleep(after)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if errs.String() != "" {
		t.Fatal(errs.String())
	}
	return out.String()
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSuffix(s, "\n"), "\n")
	if !strings.HasSuffix(s, "\n") { // truncated
		lines = lines[:len(lines)-1]
	}
	if len(lines) == 0 {
		return ""
	}
	return lines[len(lines)-1]
}

// sample writes a store with three transactions and returns where each ends.
func sample(t *testing.T, path string) (ends []int64) {
	t.Helper()
	s := openFile(t, path)
	for i := range 3 {
		fi, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, fi.Size())
		if _, err := s.Commit(storetest.Context(t), store.Op{Key: fmt.Sprintf("k/%d", i), Value: []byte("value")}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return ends
}

// TestFileTorn checks that any rest of the last record is truncated and that the store accepts writes after it.
func TestFileTorn(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store")
	ends := sample(t, path)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for cut := ends[2]; cut < int64(len(whole)); cut++ {
		for _, tail := range []string{"", "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"} {
			must(t, os.WriteFile(path, append(append([]byte{}, whole[:cut]...), tail...), 0o600))
			s := openFile(t, path)
			entries, revision, err := s.List(storetest.Context(t), "k/")
			if err != nil || len(entries) != 2 || revision != 2 {
				t.Fatalf("cut at %d: %v at %d, %v", cut, entries, revision, err)
			}
			storetest.Put(t, s, "k/on", "v")
			must(t, s.Close())
			if e, err := openFile(t, path).Get(storetest.Context(t), "k/on"); err != nil || e.Revision != 3 {
				t.Fatalf("cut at %d: %+v, %v", cut, e, err)
			}
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestFileDamaged checks that a changed byte before the last record is an error that gives the position.
func TestFileDamaged(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store")
	ends := sample(t, path)
	whole, err := os.ReadFile(path)
	must(t, err)
	for at := range ends[2] {
		bad := append([]byte{}, whole...)
		bad[at] ^= 0x40
		must(t, os.WriteFile(path, bad, 0o600))
		if _, err := store.File(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Fatalf("byte %d was changed, and the store opens: %v", at, err)
		}
		if now, _ := os.ReadFile(path); string(now) != string(bad) {
			t.Fatalf("byte %d: a damaged store was written to", at)
		}
	}
	for content, want := range map[string]string{
		"": path + ": it is empty: restore it from a backup", strings.Repeat("\x00", 4096): "zero bytes: restore it from a backup",
		"\x00": "zero bytes", "#!/bin/sh\n": `not a Fairlead store: it begins with "#!/bin/sh\n"`,
	} {
		must(t, os.WriteFile(path, []byte(content), 0o600))
		if _, err := store.File(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("with %.20q: got %v, want %q", content, err, want)
		}
	}
}

// TestFileNotRegular checks that a FIFO at the store's path is an error. Reading it would block, also at SIGTERM.
func TestFileNotRegular(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store")
	must(t, syscall.Mkfifo(path, 0o600))
	if _, err := store.File(path); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("got %v", err)
	}
}

// TestFileCompaction checks that the file is compacted and that a watcher misses nothing.
func TestFileCompaction(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store")
	s, other := openFile(t, path), openFile(t, path)
	m := &storetest.Mirror{}
	storetest.Follow(t, other, m, "")
	want := map[string]string{}
	for i := range 300 {
		key, value := fmt.Sprintf("k/%d", i%7), fmt.Sprint(i)+strings.Repeat("x", 10000)
		storetest.Put(t, s, key, value)
		want[key] = value
	}
	fi, err := os.Stat(path)
	if err != nil || fi.Size() > 2<<20 {
		t.Errorf("%d bytes for 70 kB: %v", fi.Size(), err)
	}
	kerneltest.Until(t, func() bool { return m.Has(want) })
	if resets, away, _ := m.Counts(); resets != 1 || away != 0 {
		t.Errorf("%d lists, away %d times", resets, away)
	}
}

// TestFileClosesDescriptors checks that a store has its file open once after compactions, and not after Close.
func TestFileClosesDescriptors(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store")
	opened := func() (n int) {
		entries, err := os.ReadDir("/proc/self/fd")
		must(t, err)
		for _, e := range entries {
			if file, _ := os.Readlink("/proc/self/fd/" + e.Name()); strings.HasPrefix(file, path) { // also a file that was deleted
				n++
			}
		}
		return n
	}
	s, err := store.File(path)
	must(t, err)
	for i := range 300 {
		storetest.Put(t, s, "k", fmt.Sprint(i)+strings.Repeat("x", 20000))
	}
	if n := opened(); n != 1 {
		t.Errorf("%d descriptors after compactions", n)
	}
	must(t, s.Close())
	if n := opened(); n != 0 {
		t.Errorf("%d descriptors after Close", n)
	}
}

// TestFileLarge checks that ten thousand keys are written, listed and opened quickly.
func TestFileLarge(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store")
	s := openFile(t, path)
	began := time.Now()
	for i := 0; i < 10000; i += 100 {
		var ops []store.Op
		for k := i; k < i+100; k++ {
			ops = append(ops, store.Op{Key: fmt.Sprintf("k/%05d", k), Value: []byte(strings.Repeat("v", 100))})
		}
		if _, err := s.Commit(storetest.Context(t), ops...); err != nil {
			t.Fatal(err)
		}
	}
	wrote := time.Since(began)
	began = time.Now()
	if list, _, err := openFile(t, path).List(storetest.Context(t), "k/"); err != nil || len(list) != 10000 {
		t.Fatalf("%d, %v", len(list), err)
	}
	t.Logf("100 transactions of 100 keys in %v, opened and listed in %v", wrote, time.Since(began))
	if opened := time.Since(began); opened > kerneltest.Slow(5*time.Second) {
		t.Errorf("it took %v to open", opened)
	}
}

func TestFileDeleted(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store")
	s := openFile(t, path)
	must(t, os.Remove(path))
	if _, err := s.Get(context.Background(), "a"); err == nil || !strings.Contains(err.Error(), "was deleted") {
		t.Errorf("got %v", err)
	}
}

// TestFileWithDeadHolder checks that a store can be read although the key of a dead holder cannot be released, as on a
// full disk. Here, a directory is in the place of the holder's file.
func TestFileWithDeadHolder(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store")
	s := openFile(t, path)
	storetest.Put(t, s, "nodes/a", "1")
	must(t, os.MkdirAll(path+".holds/alive%2Fa", 0o700))
	for _, s := range []store.Store{s, openFile(t, path)} {
		time.Sleep(1100 * time.Millisecond) // until the next search for dead holders
		if e, err := s.Get(storetest.Context(t), "nodes/a"); err != nil || string(e.Value) != "1" {
			t.Errorf("got %q, %v", e.Value, err)
		}
	}
}

// TestFileHoldsLongKey checks that a key can be held although its escaped form is too long for a file's name, and that
// it is released when its holder stops or dies.
func TestFileHoldsLongKey(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openFile(t, dir+"/store")
	key := "alive/" + strings.Repeat("n", 248)
	held, err := s.Hold(t.Context(), key, []byte("1"), time.Second)
	must(t, err)
	if _, err := openFile(t, dir+"/store").Hold(t.Context(), key, []byte("2"), time.Second); !errors.Is(err, store.ErrConflict) {
		t.Errorf("a second holder: %v", err)
	}
	dead := t.TempDir() // nobody locks the copies, as if the holder had died
	must(t, os.CopyFS(dead, os.DirFS(dir)))
	held.Release()
	for name, s := range map[string]store.Store{"stopped": s, "dead": openFile(t, dead+"/store")} {
		if _, err := s.Get(t.Context(), key); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the key of a %s holder: %v", name, err)
		}
	}
	for _, d := range []string{dir, dead} {
		if files, err := os.ReadDir(d + "/store.holds"); err != nil || len(files) != 0 {
			t.Errorf("left over: %v, %v", files, err)
		}
	}
}
