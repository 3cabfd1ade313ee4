package ipam

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestBrokenIndex damages the index in every way that a disk or a person can.
func TestBrokenIndex(t *testing.T) {
	t.Parallel()
	damage := map[string]func(path string) error{
		"removed":   os.Remove,
		"empty":     func(p string) error { return os.Truncate(p, 0) },
		"cut":       func(p string) error { return os.Truncate(p, 4096+100) },
		"long":      func(p string) error { return os.Truncate(p, 1<<20) },
		"garbage":   func(p string) error { return os.WriteFile(p, []byte("garbage"), 0o600) },
		"records":   func(p string) error { return overwrite(p, 4096, 4096) },
		"bitmap":    func(p string) error { return overwrite(p, 8192, 4096) },
		"header":    func(p string) error { return overwrite(p, 20, 30) },
		"temporary": func(p string) error { return os.WriteFile(p+"/../address", []byte("torn"), 0o600) },
	}
	for name, f := range damage {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, sets := t.TempDir(), setOf(t, "10.1.0.0/24")
			allocate(t, dir, Options{}, Owner{"a", "eth0"}, sets)
			allocate(t, dir, Options{}, Owner{"b", "eth0"}, sets)
			if err := f(dir + "/.fairlead/net/index"); name != "temporary" && err != nil {
				t.Fatal(err)
			}
			allocate(t, dir, Options{}, Owner{"c", "eth0"}, sets)
			if got := held(t, dir); len(got) != 3 {
				t.Errorf("allocated: %v", got)
			}
		})
	}
}

// overwrite fills a part of a file with ones.
func overwrite(path string, off int64, n int) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	b := make([]byte, n)
	for i := range b {
		b[i] = 0xff
	}
	_, err = f.WriteAt(b, off)
	return err
}

// TestIndexModel compares the index with a map under random changes.
func TestIndexModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		x, err := buildIndex(header{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		model := map[netip.Addr]record{}
		for range 2000 {
			a := netip.AddrFrom4([4]byte{10, 0, byte(rnd.IntN(6)), byte(rnd.IntN(8))})
			if seed%2 == 1 {
				a = u128{0xfd << 56, uint64(rnd.IntN(3000))}.addr()
			}
			if r, ok := model[a]; ok {
				err = x.drop(r)
				delete(model, a)
			} else if len(model) < 45 {
				r := record{owner: textKey(fmt.Sprint(rnd.IntN(10))), addr: a}
				err = x.add(r)
				model[a] = r
			}
			if err != nil {
				t.Fatal(err)
			}
			compareModel(t, x, model, a)
		}
	}
}

func compareModel(t *testing.T, x *index, model map[netip.Addr]record, a netip.Addr) {
	t.Helper()
	for i := range 10 {
		k, want := textKey(fmt.Sprint(i)), 0
		for _, r := range model {
			if r.owner == k {
				want++
			}
		}
		if got, err := x.find(k); err != nil || len(got) != want {
			t.Fatalf("owner %d has %v, %v; want %d", i, got, err, want)
		}
	}
	want := a
	for model[want].addr.IsValid() {
		want = want.Next()
	}
	if got, ok, err := x.nextFree(number(a), number(a).add(1000)); err != nil || !ok || got.addr() != want {
		t.Fatalf("next free from %s is %s, %v, %v; want %s", a, got.addr(), ok, err, want)
	}
}

func TestHeaderRoundTrip(t *testing.T) {
	t.Parallel()
	h := header{
		boot: textKey("boot"), clean: true, dir: dirState{1, 2, 3}, last: textKey("last"),
		tables: [2]extent{{64, 3}, {128, 4}}, pending: pendingAdd{textKey("o"), addr("10.1.2.3"), 77, 12345},
	}
	got, err := decodeHeader(h.encode())
	if err != nil || got != h {
		t.Errorf("got %+v, %v; want %+v", got, err, h)
	}
}

func FuzzDecodeHeader(f *testing.F) {
	f.Add((&header{tables: [2]extent{{64, 0}, {64, 0}}}).encode())
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := decodeHeader(b)
		if err != nil {
			return
		}
		if again, err := decodeHeader(h.encode()); err != nil || again != h {
			t.Errorf("%+v becomes %+v, %v", h, again, err)
		}
	})
}

// FuzzIndexFile replaces the index with arbitrary data.
func FuzzIndexFile(f *testing.F) {
	x, err := buildIndex(header{boot: textKey("b")}, []record{{owner: textKey("o"), addr: addr("10.1.0.2")}})
	if err != nil {
		f.Fatal(err)
	}
	copy(x.pages.image, x.header.encode())
	f.Add(x.pages.image)
	f.Add([]byte{})
	sets := setOf(f, "10.1.0.0/24")
	f.Fuzz(func(t *testing.T, b []byte) {
		dir := t.TempDir()
		allocate(t, dir, Options{BootID: "b"}, Owner{"a", "eth0"}, sets)
		if err := os.WriteFile(dir+"/.fairlead/net/index", b, 0o600); err != nil {
			t.Fatal(err)
		}
		allocate(t, dir, Options{BootID: "b"}, Owner{"c", "eth0"}, sets)
		if got := held(t, dir); len(got) != 2 {
			t.Errorf("allocated: %v", got)
		}
	})
}

func FuzzParseOwner(f *testing.F) {
	f.Add([]byte("id\r\neth0"))
	f.Add([]byte("old"))
	f.Add([]byte("\x00\r\n\r\n "))
	f.Fuzz(func(t *testing.T, b []byte) {
		o := parseOwner(b)
		if o.IfName == "" || o.ContainerID == "" || o.ContainerID != strings.TrimSpace(o.ContainerID) {
			return // Owner.text never writes this
		}
		if again := parseOwner([]byte(o.text())); again != o {
			t.Errorf("%q becomes %q", o, again)
		}
	})
}

// FuzzImport starts with a directory of two third-party files with arbitrary names and contents. An address with a file
// is never allocated, and an allocated address has one owner.
func FuzzImport(f *testing.F) {
	f.Add("10.1.0.2", []byte("other\r\neth0"), "last_reserved_ip.0", []byte("10.1.0.7"))
	f.Add("10.1.0.3", []byte{}, "10.1.0.2~", []byte("\x00"))
	f.Add("010.1.0.4", []byte("old"), "fd00::1", []byte("x"))
	f.Add("lock", []byte("x"), "::ffff:10.1.0.5", []byte("x"))
	f.Add(".fairlead", []byte("no directory"), "index", []byte(magic))
	sets := setOf(f, "10.1.0.0/29")
	f.Fuzz(func(t *testing.T, name1 string, text1 []byte, name2 string, text2 []byte) {
		dir := t.TempDir()
		if err := os.MkdirAll(dir+"/net", 0o755); err != nil {
			t.Fatal(err)
		}
		write := func(name string, text []byte) {
			if name == filepath.Base(name) && name != "." && name != ".." && name != "lock" {
				_ = os.WriteFile(filepath.Join(dir, "net", name), text, 0o600) // ignore names that no file can have
			}
		}
		write(name1, text1)
		write(name2, text2)
		before := held(t, dir)
		s, err := Open(context.Background(), dir, "net", Options{BootID: "b"})
		if err != nil {
			return // rejected, nothing allocated
		}
		defer s.Close()
		got, err := s.Allocate(Owner{"new", "eth0"}, sets, nil)
		if err != nil {
			return
		}
		a := got[0].Address.Addr()
		if o, taken := before[a]; taken {
			t.Errorf("%v was allocated, but %v already had it", a, o)
		}
		if after := held(t, dir); after[a] != (Owner{"new", "eth0"}) {
			t.Errorf("%v is allocated to %v", a, after[a])
		}
	})
}

// TestRebuildWithoutOpenFiles checks that an index without a free file descriptor does not forget an owner: its DEL would
// free nothing, and GC would free the address of a living container.
func TestRebuildWithoutOpenFiles(t *testing.T) {
	dir, o := t.TempDir(), Owner{"a", "eth0"}
	a := allocate(t, dir, Options{}, o, setOf(t, "10.1.0.0/24"))[0]
	with(t, dir, Options{}, func(s *Store) {
		var limit syscall.Rlimit
		if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Max: limit.Max}); err != nil {
			t.Fatal(err)
		}
		r, err := s.recordOf(a, nil)
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
		if !errors.Is(err, syscall.EMFILE) {
			t.Errorf("the owner counts as unknown: %v, %v", r.owner != ownerKey(o, a), err)
		}
	})
}
