package ipam

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
)

// BenchmarkPair measures an ADD and a DEL as a plugin runs them, with other addresses allocated.
func BenchmarkPair(b *testing.B) {
	for _, held := range []int{0, 1_000, 10_000, 50_000} {
		b.Run(fmt.Sprintf("held=%d", held), func(b *testing.B) {
			dir := b.TempDir()
			fill(b, filepath.Join(dir, "net"), netip.MustParseAddr("10.0.0.2"), held)
			benchPair(b, dir, setOf(b, "10.0.0.0/8"))
		})
	}
}

// BenchmarkNearlyFull has one free address among 65,533, the most recently released one.
func BenchmarkNearlyFull(b *testing.B) {
	dir := b.TempDir()
	fill(b, filepath.Join(dir, "net"), netip.MustParseAddr("10.0.0.2"), 65_532)
	benchPair(b, dir, setOf(b, "10.0.0.0/16"))
}

// BenchmarkRebuild measures a lookup after another implementation changed the directory.
func BenchmarkRebuild(b *testing.B) {
	dir := b.TempDir()
	fill(b, filepath.Join(dir, "net"), netip.MustParseAddr("10.0.0.2"), 50_000)
	benchLookup(b, dir)
	b.ResetTimer()
	for i := range b.N {
		os.WriteFile(filepath.Join(dir, "net", netip.AddrFrom4([4]byte{10, 9, byte(i >> 8), byte(i)}).String()), []byte("x\r\neth0"), 0o600)
		benchLookup(b, dir)
	}
}

func benchLookup(b *testing.B, dir string) {
	s, err := Open(b.Context(), dir, "net", Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Lookup(Owner{"c", "eth0"}); err != nil {
		b.Fatal(err)
	}
}

func benchPair(b *testing.B, dir string, sets []RangeSet) {
	benchLookup(b, dir)
	o := Owner{"0123456789abcdef0123456789abcdef", "eth0"}
	b.ResetTimer()
	for range b.N {
		s, err := Open(b.Context(), dir, "net", Options{})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := s.Allocate(o, sets, nil); err != nil {
			b.Fatal(err)
		}
		s.Close()
		if s, err = Open(b.Context(), dir, "net", Options{Existing: true}); err != nil {
			b.Fatal(err)
		}
		if freed, err := s.Release(o); err != nil || len(freed) != 1 {
			b.Fatal(freed, err)
		}
		s.Close()
	}
}

// fill creates address files as host-local does.
func fill(tb testing.TB, dir string, first netip.Addr, n int) {
	tb.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		tb.Fatal(err)
	}
	a := first
	for i := range n {
		if err := os.WriteFile(filepath.Join(dir, a.String()), fmt.Appendf(nil, "held%d\r\neth0", i), 0o600); err != nil {
			tb.Fatal(err)
		}
		a = a.Next()
	}
}

func setOf(tb testing.TB, subnets ...string) []RangeSet {
	tb.Helper()
	var sets []RangeSet
	for _, subnet := range subnets {
		sets = append(sets, RangeSet{{Subnet: netip.MustParsePrefix(subnet)}})
	}
	sets, err := CompleteSets(sets)
	if err != nil {
		tb.Fatal(err)
	}
	return sets
}
