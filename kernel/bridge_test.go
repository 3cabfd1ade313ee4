package kernel_test

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestExistingBridgeIgnoresRouters checks that a third-party bridge stops accepting router advertisements unless its
// accept_ra is 2.
func TestExistingBridgeIgnoresRouters(t *testing.T) {
	t.Parallel()
	for have, want := range map[string]string{"0": "0", "1": "0", "2": "2"} {
		t.Run(have, func(t *testing.T) {
			t.Parallel()
			wantAcceptRA(t, have, want, kernel.Objects{&kernel.Bridge{Name: "br0"}})
		})
	}
}

// wantAcceptRA applies objects on a host with a bridge br0, and checks what they make of its accept_ra.
func wantAcceptRA(t *testing.T, have, want string, list kernel.Objects) *kernel.Engine {
	t.Helper()
	kerneltest.Host(t)
	kerneltest.Run(t, "ip", "link", "add", "br0", "type", "bridge")
	kerneltest.Run(t, "sysctl", "-qw", "net.ipv6.conf.br0.accept_ra="+have)
	e := open(t, kerneltest.Netns(t), kernel.Options{})
	if err := e.Apply(list); err != nil {
		t.Fatal(err)
	}
	if got, err := e.Sysctl(kernel.Host, "net/ipv6/conf/br0/accept_ra"); err != nil || got != want {
		t.Errorf("accept_ra was %s, is %s (%v), want %s", have, got, err, want)
	}
	return e
}

// TestExistingBridgeKeepsVLANFiltering checks that a third-party bridge that does not filter VLANs goes on forwarding the
// tagged packets of its other ports.
func TestExistingBridgeKeepsVLANFiltering(t *testing.T) {
	t.Parallel()
	kerneltest.Needs(t, "bridge VLAN filtering")
	kerneltest.Host(t)
	kerneltest.Run(t, "ip", "link", "add", "br0", "type", "bridge")
	e := open(t, kerneltest.Netns(t), kernel.Options{})
	list := pair(&kernel.PortVLAN{Link: hostEnd, First: 7, Last: 7, PVID: true, Untagged: true})(t)
	kernel.Of[*kernel.Bridge](list)[0].VLANFiltering = true
	if err := e.Apply(list); err != nil {
		t.Fatal(err)
	}
	if d, err := e.Compare(list); err != nil || len(d) > 0 {
		t.Errorf("check: %v\n%s", err, words(d))
	}
	kerneltest.Run(t, "ip", "link", "set", "br0", "down")
	if repaired, err := e.Repair(list); err != nil || len(repaired) == 0 {
		t.Errorf("repair: %v, %v", repaired, err)
	}
	if s := kerneltest.Run(t, "ip", "-d", "link", "show", "br0"); !strings.Contains(s, "vlan_filtering 0") {
		t.Errorf("the bridge filters VLANs:\n%s", s)
	}
}

// TestPortNextToTrunk compares a port's VLANs while another port of the host carries all of them.
func TestPortNextToTrunk(t *testing.T) {
	t.Parallel()
	kerneltest.Needs(t, "bridge VLAN filtering")
	kerneltest.Host(t)
	for _, c := range []string{
		"ip link add br7 type bridge vlan_filtering 1", "ip link add trunk type veth peer name trunk1",
		"ip link set trunk master br7", "bridge vlan add dev trunk vid 2-4094",
	} {
		kerneltest.Run(t, strings.Fields(c)...)
	}
	e := open(t, kerneltest.Netns(t), kernel.Options{})
	list := pair(&kernel.PortVLAN{Link: hostEnd, First: 7, Last: 7, PVID: true, Untagged: true}, &kernel.PortVLAN{Link: hostEnd, First: 10, Last: 12})(t)
	kernel.Of[*kernel.Bridge](list)[0].VLANFiltering = true
	if err := e.Apply(list); err != nil {
		t.Fatal(err)
	}
	if d, err := e.Compare(list); err != nil || len(d) > 0 {
		t.Errorf("check: %v\n%s", err, words(d))
	}
}
