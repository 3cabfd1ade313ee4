package ipam

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// with opens a directory's store for one step of a test.
func with(t testing.TB, dir string, opts Options, f func(*Store)) {
	t.Helper()
	s, err := Open(context.Background(), dir, "net", opts)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	f(s)
}

func allocate(t testing.TB, dir string, opts Options, o Owner, sets []RangeSet, requested ...netip.Addr) (addrs []netip.Addr) {
	t.Helper()
	with(t, dir, opts, func(s *Store) {
		ips, err := s.Allocate(o, sets, requested)
		if err != nil {
			t.Fatal(err)
		}
		for _, ip := range ips {
			addrs = append(addrs, ip.Address.Addr())
		}
	})
	return addrs
}

func release(t testing.TB, dir string, o Owner) (freed []netip.Addr) {
	t.Helper()
	with(t, dir, Options{Existing: true}, func(s *Store) {
		var err error
		if freed, err = s.Release(o); err != nil {
			t.Fatal(err)
		}
	})
	return freed
}

// held reads the owners from the directory alone.
func held(t testing.TB, dir string) map[netip.Addr]Owner {
	t.Helper()
	d := directory(filepath.Join(dir, "net"))
	addrs, err := d.addresses()
	if err != nil {
		t.Fatal(err)
	}
	owners := map[netip.Addr]Owner{}
	for _, a := range addrs {
		if owners[a], err = d.owner(a); err != nil {
			t.Fatal(err)
		}
	}
	return owners
}

// consistent compares the index with the directory: the same addresses, owners and bits.
func consistent(t testing.TB, dir string) {
	t.Helper()
	owners := held(t, dir)
	with(t, dir, Options{}, func(s *Store) {
		records, err := s.index.all()
		if err != nil {
			t.Fatal(err)
		}
		if len(records) != len(owners) || s.index.header.tables[0].used != uint32(len(owners)) {
			t.Errorf("the index has %d records and counts %d, the directory %d addresses", len(records), s.index.header.tables[0].used, len(owners))
		}
		for _, r := range records {
			if o, ok := owners[r.addr]; !ok || ownerKey(o, r.addr) != r.owner {
				t.Errorf("the index is wrong about %s", r.addr)
			}
			if b, _, _, err := s.index.block(number(r.addr)); err != nil || !b.allocated(byte(number(r.addr).lo)) {
				t.Errorf("the bit of %s is not set: %v", r.addr, err)
			}
		}
	})
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func TestRoundRobin(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	sets, err := CompleteSets([]RangeSet{{
		{Subnet: netip.MustParsePrefix("10.1.0.0/29")},
		{Subnet: netip.MustParsePrefix("10.2.0.0/30")},
	}})
	if err != nil {
		t.Fatal(err)
	}
	o := Owner{"c", "eth0"}
	for _, want := range []string{"10.1.0.2", "10.1.0.3", "10.1.0.4", "10.1.0.5", "10.1.0.6", "10.2.0.2", "10.1.0.2", "10.1.0.3"} {
		if got := allocate(t, dir, Options{}, o, sets); got[0] != addr(want) {
			t.Errorf("got %s, want %s", got[0], want)
		}
		release(t, dir, o)
	}
}

// TestNearlyFull finds the one free address wherever it is.
func TestNearlyFull(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	sets := setOf(t, "10.1.0.0/20")
	fill(t, filepath.Join(dir, "net"), addr("10.1.0.2"), 4093)
	with(t, dir, Options{}, func(s *Store) {
		if _, err := s.Allocate(Owner{"late", "eth0"}, sets, nil); !errors.Is(err, ErrExhausted) {
			t.Errorf("a full range: %v", err)
		}
		if err := s.Usable(sets); !errors.Is(err, ErrExhausted) {
			t.Errorf("a full range is usable: %v", err)
		}
	})
	for _, n := range []string{"held4092", "held0", "held2000", "held253", "held254"} {
		freed := release(t, dir, Owner{n, "eth0"})
		got := allocate(t, dir, Options{}, Owner{"new" + n, "eth0"}, sets)
		if !slices.Equal(freed, got) {
			t.Errorf("freed %s, then allocated %s", freed, got)
		}
	}
	consistent(t, dir)
}

// TestIndexRebuildsAtEverySize crosses every size at which the index is rebuilt.
func TestIndexRebuildsAtEverySize(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	sets := setOf(t, "10.1.0.0/16", "fd00::/64")
	with(t, dir, Options{}, func(s *Store) {
		for i := range 400 {
			o := Owner{"c" + string(rune('0'+i%10)), "eth" + string(rune('0'+i/10))}
			if _, err := s.Allocate(o, sets, nil); err != nil {
				t.Fatal(err)
			}
		}
	})
	consistent(t, dir)
	for i := range 400 {
		if got := release(t, dir, Owner{"c" + string(rune('0'+i%10)), "eth" + string(rune('0'+i/10))}); len(got) != 2 {
			t.Fatalf("released %v", got)
		}
	}
	consistent(t, dir)
}

// TestFailedSetFreesEarlierSets checks that the first set's address is freed if the second set has none.
func TestFailedSetFreesEarlierSets(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	allocate(t, dir, Options{}, Owner{"a", "eth0"}, setOf(t, "10.1.0.0/30"))
	with(t, dir, Options{}, func(s *Store) {
		_, err := s.Allocate(Owner{"b", "eth0"}, setOf(t, "10.2.0.0/24", "10.1.0.0/30"), nil)
		if !errors.Is(err, ErrExhausted) {
			t.Errorf("got %v", err)
		}
	})
	if got := held(t, dir); len(got) != 1 {
		t.Errorf("allocated: %v", got)
	}
	consistent(t, dir)
}

// TestOtherRanges checks that an attachment can have addresses of other ranges: a second call of the plugin asks for them, or
// the ranges have changed since an ADD that nobody deleted. The reference plugin rejects only a second address in a range.
func TestOtherRanges(t *testing.T) {
	t.Parallel()
	dir, o := t.TempDir(), Owner{"a", "eth0"}
	first, second := setOf(t, "10.1.0.0/24"), setOf(t, "10.2.0.0/24")
	allocate(t, dir, Options{}, o, first)
	allocate(t, dir, Options{}, o, second)
	for _, sets := range [][]RangeSet{first, second, setOf(t, "10.3.0.0/24", "10.2.0.0/24")} {
		with(t, dir, Options{}, func(s *Store) {
			if _, err := s.Allocate(o, sets, nil); err == nil || !strings.Contains(err.Error(), "has been allocated to") {
				t.Errorf("again from %v: %v", sets, err)
			}
		})
	}
	consistent(t, dir)
	if freed := release(t, dir, o); len(freed) != 2 {
		t.Errorf("freed %v", freed)
	}
}

// TestReallocateAfterRestart checks that an attachment gets its addresses again after a restart.
func TestReallocateAfterRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	sets, o := setOf(t, "10.1.0.0/24", "fd00::/64"), Owner{"a", "eth0"}
	first := allocate(t, dir, Options{}, o, sets)
	allocate(t, dir, Options{}, Owner{"b", "eth0"}, sets)
	with(t, dir, Options{}, func(s *Store) {
		if _, err := s.Allocate(o, sets, nil); err == nil {
			t.Error("a second address was allocated")
		}
		had, err := s.Lookup(o)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Release(o); err != nil {
			t.Fatal(err)
		}
		again, err := s.Allocate(o, sets, had)
		if err != nil || again[0].Address.Addr() != first[0] || again[1].Address.Addr() != first[1] {
			t.Errorf("had %v, got %v, %v", first, again, err)
		}
	})
}

func TestLocked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	with(t, dir, Options{}, func(*Store) {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer cancel()
		_, err := Open(ctx, dir, "net", Options{})
		e, ok := errors.AsType[*cni.Error](err)
		want := fmt.Sprintf("lock the network's addresses: the lock %s/net/lock is held by ipam.test (process %d)", dir, os.Getpid())
		if !ok || e.Code != cni.CodeTryAgainLater || !strings.HasPrefix(e.Msg, want) {
			t.Errorf("got %v, want %s", err, want)
		}
	})
	// A process that gave up waiting must not get the lock later.
	with(t, dir, Options{}, func(*Store) {})
}

// TestLockOfReplacedDirectory empties a directory while a process waits for its lock, as administrators do after "no IP
// addresses available". The process must not work next to another one that has the new lock.
func TestLockOfReplacedDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, err := Open(t.Context(), dir, "net", Options{})
	if err != nil {
		t.Fatal(err)
	}
	opened := make(chan error, 1)
	go func() {
		s, err := Open(context.Background(), dir, "net", Options{})
		opened <- err
		if err == nil {
			s.Close()
		}
	}()
	waits := func() bool {
		var st syscall.Stat_t
		locks, err := os.ReadFile("/proc/locks")
		if err = errors.Join(err, syscall.Stat(dir+"/net/lock", &st)); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(locks)) {
			if strings.Contains(line, "->") && strings.Contains(line, fmt.Sprintf(":%d ", st.Ino)) {
				return true
			}
		}
		return false
	}
	kerneltest.Until(t, waits)
	if err := os.Rename(dir+"/net", dir+"/old"); err != nil {
		t.Fatal(err)
	}
	second, err := Open(t.Context(), dir, "net", Options{})
	if err != nil {
		t.Fatal(err)
	}
	first.Close()
	kerneltest.Until(t, func() bool { return len(opened) > 0 || waits() })
	if len(opened) > 0 {
		t.Errorf("two processes work in the directory: %v", <-opened)
		second.Close()
		return
	}
	second.Close()
	if err := <-opened; err != nil {
		t.Error(err)
	}
}

func TestOpenErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"", ".", "..", "a/b", ".fairlead"} {
		if _, err := Open(context.Background(), dir, name, Options{}); err == nil {
			t.Errorf("network %q is accepted", name)
		}
	}
	if _, err := Open(context.Background(), dir, "none", Options{Existing: true}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a network without a directory: %v", err)
	}
	if err := os.WriteFile(dir+"/file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(context.Background(), dir+"/file", "net", Options{}); err == nil || errors.Is(err, os.ErrNotExist) {
		t.Errorf("a data directory that is a file: %v", err)
	}
}
