package gather

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/doctor"
	"github.com/fairlead/fairlead/gc"
	"github.com/fairlead/fairlead/kernel"
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
