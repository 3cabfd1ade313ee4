package kernel_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestDeviceThatCannotMove checks that a device that the kernel refuses to move keeps its routes.
func TestDeviceThatCannotMove(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	for _, c := range []string{
		"ip link add br0 type bridge", "ip addr add 192.0.2.2/24 dev br0", "ip link set br0 up", "ip route add default via 192.0.2.1",
	} {
		kerneltest.Run(t, strings.Fields(c)...)
	}
	e := open(t, kerneltest.Netns(t), kernel.Options{})
	device := &kernel.HostDevice{Device: "br0", Name: "eth0", OwnerTag: kernel.HostDeviceTag(owner, "br0"), PreviousUp: true}
	if err := e.Apply(kernel.Objects{device}); !errors.Is(err, unix.EINVAL) {
		t.Errorf("the kernel moved a bridge: %v", err)
	}
	if routes := kerneltest.Run(t, "ip", "route"); !strings.Contains(routes, "default via 192.0.2.1 dev br0") {
		t.Errorf("routes:\n%s", routes)
	}
}

// TestHostDeviceRegainsNetwork checks that a device has its addresses and routes again on the host, also if the process
// that returned it was killed before it had set them, and if the host has some of them by now.
func TestHostDeviceRegainsNetwork(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	netns := kerneltest.Netns(t)
	kerneltest.Run(t, "ip", "link", "add", "dev0", "up", "type", "ifb")
	prefix := netip.MustParsePrefix
	m := &kernel.HostDevice{
		Device: "dev0", Name: "net1", OwnerTag: kernel.HostDeviceTag(owner, "dev0"), PreviousUp: true, Network: true,
		PreviousAddrs: []netip.Prefix{prefix("192.0.2.2/24"), prefix("2001:db8::2/64")},
		PreviousRoutes: []kernel.Route{
			{Dst: prefix("0.0.0.0/0"), Via: addr("192.0.2.1"), Link: "dev0", Proto: 4, Metric: 7},
			{Dst: prefix("203.0.113.0/24"), Via: addr("198.51.100.1"), Link: "dev0"}, // no longer reachable
		},
	}
	e := open(t, netns, kernel.Options{})
	want := func(when string) {
		t.Helper()
		state := kerneltest.Run(t, "ip", "-o", "addr", "show", "dev", "dev0") + kerneltest.Run(t, "ip", "route") + kerneltest.Run(t, "ip", "-d", "link", "show", "dev0")
		for _, s := range []string{"inet 192.0.2.2/24 brd 192.0.2.255", "inet6 2001:db8::2/64", "default via 192.0.2.1 dev dev0 proto static metric 7"} {
			if !strings.Contains(state, s) {
				t.Errorf("%s: %q is missing:\n%s", when, s, state)
			}
		}
		if strings.Contains(state, "alias") {
			t.Errorf("%s: it still has its owner tag:\n%s", when, state)
		}
	}
	if err := errors.Join(e.Apply(kernel.Objects{m}), e.Remove(kernel.Objects{m})); err != nil {
		t.Fatal(err)
	}
	want("DEL")
	if err := e.Apply(kernel.Objects{m}); err != nil {
		t.Fatal(err)
	}
	host, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	kerneltest.In(t, netns, "ip", "link", "set", "net1", "netns", fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), host.Fd()), "name", "dev0")
	kerneltest.Run(t, "ip", "addr", "add", "192.0.2.2/24", "brd", "+", "dev", "dev0")
	if err := e.Remove(kernel.Objects{m}); err != nil {
		t.Fatal(err)
	}
	want("DEL after a killed one")
}

// TestHardwareReturnsLater removes a device whose namespace has ended, before the kernel has moved the device to the host.
func TestHardwareReturnsLater(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	e, err := kernel.Open(nil, kernel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	m := &kernel.HostDevice{Device: "eth1", Name: "eth0", OwnerTag: kernel.HostDeviceTag(owner, "eth1"), PreviousAlias: "old words", PreviousUp: true, Hardware: true}
	kerneltest.Run(t, "ip", "link", "add", "dev5", "type", "ifb") // the kernel takes such a name if another device has the old one
	removed := make(chan error)
	go func() { removed <- e.Remove(kernel.Objects{m}) }()
	time.Sleep(100 * time.Millisecond)
	kerneltest.Run(t, "ip", "link", "set", "dev5", "alias", m.OwnerTag)
	if err := <-removed; err != nil {
		t.Fatal(err)
	}
	if s := kerneltest.Run(t, "ip", "-d", "link", "show", "eth1"); !strings.Contains(s, "alias old words") || !strings.Contains(s, "UP") {
		t.Errorf("it returned as\n%s", s)
	}
}

// TestHardwareWithoutTag removes a device whose alias somebody changed in the container. It is found by its name. The
// loopback device stands in for hardware: it has no link type, and the kernel refuses to move it.
func TestHardwareWithoutTag(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	e := open(t, kerneltest.Netns(t), kernel.Options{})
	err := e.Remove(kernel.Objects{&kernel.HostDevice{Device: "dev0", Name: "lo", OwnerTag: "fairlead h a lo was dev0"}})
	if err == nil || !strings.Contains(err.Error(), "return lo to the host as dev0") {
		t.Errorf("%v, want an attempt to return the device", err)
	}
}
