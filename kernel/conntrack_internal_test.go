package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/netlink"
)

// TestLocalAddrs checks that an address of two links is listed once.
func TestLocalAddrs(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	for _, c := range []string{
		"ip link add a0 type veth peer name b0", "ip addr add 192.0.2.1/24 dev a0", "ip addr add 192.0.2.1/24 dev b0",
		"ip addr add 192.0.2.2/24 dev a0", "ip addr add 198.51.100.1 peer 198.51.100.2 dev a0",
	} {
		kerneltest.Run(t, strings.Fields(c)...)
	}
	e, err := Open(nil, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	got, err := e.localAddrs(IPv4)
	slices.SortFunc(got, netip.Addr.Compare)
	if want := "[127.0.0.1 192.0.2.1 192.0.2.2 198.51.100.1]"; err != nil || fmt.Sprint(got) != want {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
}

// TestEndFormerFlows ends the flows to a UDP port at every address of the host. The number of requests does not depend
// on the number of addresses.
func TestEndFormerFlows(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	for i := range 20 {
		kerneltest.Run(t, "ip", "addr", "add", fmt.Sprintf("192.0.2.%d/24", i+1), "dev", "lo")
	}
	stay := []netlink.Request{
		addEntry(unix.IPPROTO_UDP, "10.9.0.1:1000", "192.0.2.7:54", "10.1.0.4:54", nil),
		addEntry(unix.IPPROTO_TCP, "10.9.0.1:1000", "192.0.2.7:53", "10.1.0.4:53", nil),
		addEntry(unix.IPPROTO_UDP, "10.9.0.1:1000", "198.51.100.1:53", "198.51.100.1:53", nil), // another machine's port
		addEntry(unix.IPPROTO_UDP, "[fd00::1]:1000", "[::1]:53", "[fd00::4]:53", nil),
	}
	end := []netlink.Request{
		addEntry(unix.IPPROTO_UDP, "10.9.0.1:2000", "192.0.2.7:53", "10.1.0.4:53", nil),  // to a previous target
		addEntry(unix.IPPROTO_UDP, "10.9.0.1:2001", "192.0.2.20:53", "10.1.0.5:54", nil), // to another port of the target
		addEntry(unix.IPPROTO_UDP, "10.9.0.1:2002", "127.0.0.1:53", "127.0.0.1:53", nil), // to the host
	}
	addEntries(t, openConntrack(t), append(stay, end...)...)
	e, err := Open(nil, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	c, err := e.Netfilter()
	if err != nil {
		t.Fatal(err)
	}
	sent := func() uint64 { return reflect.ValueOf(c).Elem().FieldByName("seq").Uint() }
	before := sent()
	if err := e.Apply(Objects{&ConntrackFlows{Port: 53, Target: netip.MustParseAddr("10.1.0.5")}}); err != nil {
		t.Fatal(err)
	}
	if n := sent() - before; n > uint64(1+len(end)) {
		t.Errorf("%d requests for %d flows", n, len(end))
	}
	if left := kerneltest.Run(t, "conntrack", "-L"); strings.Count(left, " sport=1000 ") != len(stay) || strings.Contains(left, " sport=200") {
		t.Errorf("left:\n%s", left)
	}
}

// TestFlowsWithoutConntrack creates and removes a UDP host port on a kernel without the netlink interface of connection
// tracking.
func TestFlowsWithoutConntrack(t *testing.T) {
	t.Parallel()
	e := openWithoutSubsystems(t)
	for _, host := range []netip.Addr{{}, netip.MustParseAddr("127.0.0.1")} {
		list := Objects{&ConntrackFlows{HostIP: host, Port: 53, Target: netip.MustParseAddr("10.1.0.5")}}
		if err := errors.Join(e.Apply(list), e.Remove(list)); err != nil {
			t.Error(err)
		}
		if d, err := e.Compare(list); err != nil || len(d) > 0 {
			t.Errorf("check: %v, %v", d, err)
		}
	}
}
