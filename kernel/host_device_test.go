package kernel_test

import (
	"errors"
	"strings"
	"testing"

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
