package ipam

import (
	"context"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tree returns every file below a directory with its contents and times, which Peek must not change.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		b.WriteString(path + " " + info.ModTime().String() + "\n")
		if d.Type().IsRegular() {
			raw, err := os.ReadFile(path)
			b.Write(raw)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func peekSets(t *testing.T) []RangeSet {
	t.Helper()
	sets, err := CompleteSets([]RangeSet{
		{{Subnet: netip.MustParsePrefix("10.1.0.0/29")}}, {{Subnet: netip.MustParsePrefix("fd00::/64")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return sets
}

func texts(ips []IP) string {
	var out []string
	for _, ip := range ips {
		out = append(out, ip.Address.String()+" by "+ip.Gateway.String())
	}
	return strings.Join(out, ", ")
}

// TestPeek compares each Peek with the Allocate that follows it.
func TestPeek(t *testing.T) {
	t.Parallel()
	dir, sets := t.TempDir(), peekSets(t)
	for i, id := range []string{"a", "b", "c", "d", "e"} {
		o := Owner{ContainerID: id, IfName: "eth0"}
		before := tree(t, dir)
		saw, err := Peek(dir, "net", o, sets, nil)
		if err != nil {
			t.Fatal(err)
		}
		if after := tree(t, dir); after != before {
			t.Fatalf("Peek changed the directory to\n%s\nfrom\n%s", after, before)
		}
		s, err := Open(context.Background(), dir, "net", Options{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.Allocate(o, sets, nil)
		if err != nil {
			t.Fatal(err)
		}
		if texts(saw) != texts(got) {
			t.Errorf("Peek returned %s, Allocate %s", texts(saw), texts(got))
		}
		if i == 2 { // the most recently released address comes last
			if _, err := s.Release(Owner{ContainerID: "a", IfName: "eth0"}); err != nil {
				t.Fatal(err)
			}
		}
		s.Close()
		if held, err := Peek(dir, "net", o, sets, nil); err != nil || texts(held) != texts(got) {
			t.Errorf("Peek for the owner of %s: %s, %v", texts(got), texts(held), err)
		}
	}
}

func TestPeekRequested(t *testing.T) {
	t.Parallel()
	dir, sets := t.TempDir(), peekSets(t)
	o := Owner{ContainerID: "a", IfName: "eth0"}
	want := []netip.Addr{netip.MustParseAddr("10.1.0.5")}
	if saw, err := Peek(dir, "net", o, sets, want); err != nil || !strings.HasPrefix(texts(saw), "10.1.0.5/29 by 10.1.0.1, fd00::2/64") {
		t.Errorf("Peek returned %s, %v", texts(saw), err)
	}
	s, err := Open(context.Background(), dir, "net", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Allocate(o, sets, want); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if _, err := Peek(dir, "net", Owner{ContainerID: "b", IfName: "eth0"}, sets, want); err == nil || !strings.Contains(err.Error(), "10.1.0.5 is already taken by container a") {
		t.Errorf("a requested address that is taken: %v", err)
	}
	if _, err := Peek(dir, "net", o, sets, []netip.Addr{netip.MustParseAddr("192.0.2.1")}); err == nil {
		t.Error("a requested address outside of the sets was accepted")
	}
}

func TestPeekExhausted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	sets, err := CompleteSets([]RangeSet{{{Subnet: netip.MustParsePrefix("10.1.0.0/30")}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "net"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "net", "10.1.0.2"), []byte("a\r\neth0"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Peek(dir, "net", Owner{ContainerID: "b", IfName: "eth0"}, sets, nil); !errors.Is(err, ErrExhausted) {
		t.Errorf("got %v, want %v", err, ErrExhausted)
	}
}

// TestPeekAfterReboot checks that an earlier boot's addresses count as free, and that their files stay.
func TestPeekAfterReboot(t *testing.T) {
	t.Parallel()
	dir, sets := t.TempDir(), peekSets(t)
	s, err := Open(context.Background(), dir, "net", Options{BootID: "an earlier one"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Allocate(Owner{ContainerID: "dead", IfName: "eth0"}, sets, nil); err != nil {
		t.Fatal(err)
	}
	s.Close()
	before := tree(t, dir)
	wanted := []netip.Addr{netip.MustParseAddr("10.1.0.2")}
	saw, err := Peek(dir, "net", Owner{ContainerID: "b", IfName: "eth0"}, sets, wanted)
	if err != nil || !strings.HasPrefix(texts(saw), "10.1.0.2/29") {
		t.Errorf("Peek returned %s, %v", texts(saw), err)
	}
	if tree(t, dir) != before {
		t.Error("Peek changed the directory")
	}
}
