package packet_test

import (
	"errors"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/netns"
	"github.com/fairlead/fairlead/kernel/packet"
)

func TestPing(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	ns, err := netns.Current()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	for _, to := range []string{"127.0.0.1", "::1"} {
		if err := packet.Ping(t.Context(), ns, netip.MustParseAddr(to), 0, kerneltest.Slow(time.Second)); err != nil {
			t.Errorf("%s: %v", to, err)
		}
	}
	kerneltest.Run(t, "sysctl", "-qw", "net.ipv4.icmp_echo_ignore_all=1")
	if err := packet.Ping(t.Context(), ns, netip.MustParseAddr("127.0.0.1"), 0, 50*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("nobody answers: %v", err)
	}
	if err := packet.Ping(t.Context(), ns, netip.MustParseAddr("192.0.2.1"), 0, time.Second); err == nil || !strings.Contains(err.Error(), "unreachable") {
		t.Errorf("no route: %v", err)
	}
}

// TestPingLinkLocal pings a link-local address, which is one of a link.
func TestPingLinkLocal(t *testing.T) {
	t.Parallel()
	ns, near, _ := pair(t)
	kerneltest.Run(t, "ip", "addr", "add", "fe80::77/64", "dev", "near", "nodad")
	kerneltest.Until(t, func() bool { // the kernel uses an IPv6 address when a worker has seen the link's carrier
		return strings.Contains(kerneltest.Run(t, "ip", "-6", "route", "show", "table", "local", "dev", "near"), "fe80::77")
	})
	must(t, packet.Ping(t.Context(), ns, netip.MustParseAddr("fe80::77"), near, kerneltest.Slow(time.Second)))
}

// TestNamespaces checks that All returns each namespace in use once, and its addresses.
func TestNamespaces(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	inside := kerneltest.Netns(t)
	kerneltest.In(t, inside, "ip", "addr", "add", "192.0.2.77/32", "dev", "lo")
	all, err := netns.All()
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for i, ns := range all {
		for _, other := range all[:i] {
			if ns.SameAs(other) {
				t.Errorf("%s and %s are one", ns.Path(), other.Path())
			}
		}
		addrs, _ := ns.Addrs() // other namespaces may end meanwhile
		for _, a := range addrs {
			if a == netip.MustParseAddr("192.0.2.77") {
				found++
			}
		}
	}
	for _, ns := range all {
		ns.Close()
	}
	if found != 1 {
		t.Errorf("the address was seen %d times in %d namespaces", found, len(all))
	}
}
