package kernel_test

import (
	"errors"
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
