package gather

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/doctor"
	"github.com/fairlead/fairlead/gc"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/libcni"
)

// TestSeveralAddressDirectories checks that an address counts as held if one of a network's directories has it, and that
// a directory which cannot be read is no reason for a finding. Addresses that a device had on the host are not assigned.
func TestSeveralAddressDirectories(t *testing.T) {
	t.Parallel()
	first, second := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
	hold := func(dir, address, owner string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(dir, "net"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "net", address), []byte(owner+"\r\neth0"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	hold(first, "10.1.0.2", "c1")
	hold(second, "10.1.0.3", "c1")
	hold(first, "10.1.0.4", "other")
	hold(second, "10.1.0.9", "other")
	g := &gatherer{addressDirs: []gc.HostLocalDir{{Path: first, Network: "net"}, {Path: second, Network: "net"}, {Path: second, Network: "net2"}}}
	record := &attach.Record{Network: "net", ContainerID: "c1", IfName: "eth0", Parts: []attach.Part{{Plugin: "bridge", IPAM: "host-local"}}}
	read := func() (out []string) {
		a := &doctor.Attachment{}
		for _, text := range []string{"10.1.0.2/24", "10.1.0.3/24", "10.1.0.4/24", "10.1.0.5/24"} {
			a.Addrs = append(a.Addrs, netip.MustParsePrefix(text))
		}
		g.held(a, record)
		for _, h := range a.Held {
			out = append(out, fmt.Sprint(h.Addr, " ", h.Free, " ", h.Owner.ContainerID))
		}
		return out
	}
	if got, want := fmt.Sprint(read()), "[10.1.0.2 false c1 10.1.0.3 false c1 10.1.0.4 false other 10.1.0.5 true ]"; got != want || len(g.unseen) > 0 {
		t.Errorf("got %s, want %s; not read: %q", got, want, g.unseen)
	}
	bridged := record.Parts
	record.Parts = []attach.Part{{Plugin: "host-device", IPAM: "host-local", Objects: attach.LazyOf(kernel.Objects{&kernel.HostDevice{Device: "dev0", Name: "eth0", Network: true}})}}
	if got, want := fmt.Sprint(read()), "[10.1.0.2 false c1 10.1.0.3 false c1 10.1.0.4 false other]"; got != want {
		t.Errorf("some addresses are those of the host's device: got %s, want %s", got, want)
	}
	record.Parts = bridged
	if err := os.MkdirAll(second, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(second, "net")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(second, "net"), nil, 0o600); err != nil { // not a directory
		t.Fatal(err)
	}
	if got := read(); len(got) > 0 || len(g.unseen) != 1 {
		t.Errorf("an unreadable directory: %q, not read: %q", got, g.unseen)
	}
}

// TestDeletedAddressDirectory checks that an address does not count as held after the network's directory was deleted.
func TestDeletedAddressDirectory(t *testing.T) {
	t.Parallel()
	g := &gatherer{Options: Options{LibDir: t.TempDir()}}
	record := &attach.Record{Network: "net", ContainerID: "c1", IfName: "eth0", Parts: []attach.Part{{Plugin: "bridge", IPAM: "host-local"}}}
	a := &doctor.Attachment{Addrs: []netip.Prefix{netip.MustParsePrefix("10.1.5.5/16")}}
	g.held(a, record)
	if want := filepath.Join(g.LibDir, "networks", "net", "10.1.5.5"); len(a.Held) != 1 || !a.Held[0].Free || a.Held[0].File != want {
		t.Errorf("got %+v, want a missing file %s", a.Held, want)
	}
}

// TestHeldTime checks that the owner of an address is found without reading all addresses of the network, which takes
// seconds for 500 of 2,000 addresses.
func TestHeldTime(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "net"), 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range 2_000 {
		if err := os.WriteFile(filepath.Join(dir, "net", fmt.Sprintf("10.1.%d.%d", i/200, i%200)), []byte("c1\r\neth0"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	g := &gatherer{addressDirs: []gc.HostLocalDir{{Path: dir, Network: "net"}}}
	record := &attach.Record{Network: "net", ContainerID: "c1", IfName: "eth0", Parts: []attach.Part{{Plugin: "bridge", IPAM: "host-local"}}}
	began := time.Now()
	for range 500 {
		a := &doctor.Attachment{Addrs: []netip.Prefix{netip.MustParsePrefix("10.1.5.5/16")}}
		if g.held(a, record); len(a.Held) != 1 || a.Held[0].Free || a.Held[0].Owner != a.Held[0].Expected {
			t.Fatalf("got %+v", a.Held)
		}
	}
	if took := time.Since(began); took > kerneltest.Slow(time.Second) {
		t.Errorf("it took %v", took)
	}
}

// TestFactsCancelled checks that doctor stops when its context ends.
func TestFactsCancelled(t *testing.T) {
	kerneltest.Host(t)
	root := t.TempDir()
	dir := attach.Open(root)
	r := dir.New("net", "c1", "eth0", "/proc/self/ns/net")
	if err := dir.Write(r); err != nil {
		t.Fatal(err)
	}
	r.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	o := Options{Runtime: libcni.NewCNIConfigWithCacheDir(nil, t.TempDir(), nil), StateDir: root, LibDir: t.TempDir(), ConfDir: t.TempDir()}
	if _, _, err := Facts(ctx, o); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
