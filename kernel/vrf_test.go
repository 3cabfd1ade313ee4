package kernel_test

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestFailedVRFMember adds a link to a VRF that cannot have the link's routes: the table is the main one. The link
// leaves the VRF again, with its routes and addresses.
func TestFailedVRFMember(t *testing.T) {
	t.Parallel()
	kerneltest.Needs(t, "vrf")
	kerneltest.Host(t)
	ns := kerneltest.Netns(t)
	for _, c := range []string{
		"link set lo up", "link add eth0 type veth peer name far0", "link set far0 up", "link set eth0 up",
		"addr add 10.9.0.2/24 dev eth0 noprefixroute", "addr add fd09::2/64 dev eth0 nodad",
		"route add 10.9.0.1/32 dev eth0 scope link src 10.9.0.2", "route add 10.9.0.0/24 via 10.9.0.1 dev eth0 src 10.9.0.2",
		"route add default via 10.9.0.1 dev eth0", "-6 route add default via fd09::1 dev eth0",
	} {
		kerneltest.In(t, ns, append([]string{"ip"}, strings.Fields(c)...)...)
	}
	state := func() string {
		return kerneltest.In(t, ns, "sh", "-c", "ip -4 route show; ip -6 route show | grep -v fe80; ip -o addr show eth0 | grep -v fe80; ip link show type vrf")
	}
	before := state()
	err := open(t, ns, kernel.Options{}).Apply(kernel.Objects{
		&kernel.VRF{Name: "blue", Table: 254},
		&kernel.VRFMember{Link: "eth0", VRF: "blue"},
	})
	if err == nil || strings.Contains(err.Error(), "invalid IP") {
		t.Errorf("got %v, want an error about a route in table 254", err)
	}
	if after := state(); after != before {
		t.Errorf("after the failure:\n%s\nbefore:\n%s", after, before)
	}
}
