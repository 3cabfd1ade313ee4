package kernel_test

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestRestoreRefusedAttributes removes attributes of which the kernel takes some back no more: another link has the former
// hardware address, and the parent's MTU is smaller than the former one. The others are restored.
func TestRestoreRefusedAttributes(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	kerneltest.Needs(t, "macvlan")
	netns := kerneltest.Netns(t)
	for _, args := range []string{
		"link add up0 type veth peer name up1", "link set up0 up", "link set up1 up",
		"link add other0 link up0 address 02:00:00:00:00:0a type macvlan mode bridge", "link set other0 up",
		"link add eth0 link up0 address 02:00:00:00:00:0b netns " + netns + " type macvlan mode bridge",
	} {
		kerneltest.Run(t, append([]string{"ip"}, strings.Fields(args)...)...)
	}
	kerneltest.In(t, netns, "ip", "link", "set", "eth0", "up", "promisc", "on", "mtu", "1300")
	on, off := true, false
	attrs := &kernel.LinkAttrs{
		Link: "eth0", Set: kernel.LinkSettings{MAC: "02:00:00:00:00:0b", MTU: 1300, Promisc: &on},
		Previous: kernel.LinkSettings{MAC: "02:00:00:00:00:0a", MTU: 9000, Promisc: &off},
	}
	if err := open(t, netns, kernel.Options{}).Remove(kernel.Objects{attrs}); err != nil {
		t.Error(err)
	}
	if link := kerneltest.In(t, netns, "ip", "-d", "link", "show", "eth0"); strings.Contains(link, "PROMISC") || !strings.Contains(link, "mtu 1300") {
		t.Errorf("after the removal:\n%s", link)
	}
}
