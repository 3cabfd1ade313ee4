package kernel_test

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

const agentMark = "fairlead-agent test"

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// tunnelUnder creates the underlay, a link with an address of each family.
func tunnelUnder(t *testing.T) {
	t.Helper()
	for _, c := range []string{
		"ip link add up0 type veth peer name up1", "ip addr add 192.0.2.1/24 dev up0", "ip addr add 2001:db8::1/64 dev up0 nodad", "ip link set up0 up", "ip link set up1 up",
	} {
		kerneltest.Run(t, strings.Fields(c)...)
	}
}

func vxlan(local string) *kernel.VXLAN {
	return &kernel.VXLAN{Name: "vx1", ID: 7, Port: 8472, Local: addr(local), Link: "up0", MAC: "02:00:00:00:00:01", MTU: 1430, OwnerTag: agentMark}
}

// tunnelCase is a tunnel of each type. Its functions return it with a change that can be made in place, and with one
// that cannot.
type tunnelCase struct {
	name, needs      string
	object           kernel.Object
	want             []string // in the output of ip -d link
	adapted, created kernel.Object
	says             []string // the differences of those two
}

func tunnelCases() []tunnelCase {
	v := func(local string, change func(*kernel.VXLAN)) kernel.Object {
		x := vxlan(local)
		change(x)
		return x
	}
	none := func(*kernel.VXLAN) {}
	ipip := func(local string, mtu int) kernel.Object {
		return &kernel.IPIP{Name: "tun1", Local: addr(local), MTU: mtu, OwnerTag: agentMark}
	}
	return []tunnelCase{
		{"vxlan over IPv4", "vxlan", v("192.0.2.1", none),
			[]string{"mtu 1430", "vxlan id 7 local 192.0.2.1 dev up0 srcport 0 0 dstport 8472 nolearning ttl auto ageing 300 udpcsum noudp6zerocsumtx noudp6zerocsumrx",
				"UP", "link/ether 02:00:00:00:00:01", "addrgenmode none", "alias " + agentMark},
			v("192.0.2.1", func(v *kernel.VXLAN) { v.MTU, v.MAC = 1400, "02:00:00:00:00:02" }), v("192.0.2.1", func(v *kernel.VXLAN) { v.ID, v.Port = 8, 4789 }),
			[]string{"address is 02:00:00:00:00:01, want 02:00:00:00:00:02, mtu is 1430, want 1400", "VNI is 7, want 8, port is 8472, want 4789"}},
		{"vxlan over IPv6", "vxlan", v("2001:db8::1", none), []string{"vxlan id 7 local 2001:db8::1 dev up0", "nolearning"},
			v("2001:db8::1", func(v *kernel.VXLAN) { v.MTU = 1400 }), v("192.0.2.1", none),
			[]string{"mtu is 1430, want 1400", "local is 2001:db8::1, want 192.0.2.1"}},
		{"vxlan without a link", "vxlan", v("192.0.2.1", func(v *kernel.VXLAN) { v.Link, v.MTU = "", 8950 }), []string{"vxlan id 7 local 192.0.2.1 srcport", "mtu 8950"},
			v("192.0.2.1", func(v *kernel.VXLAN) { v.Link, v.MTU = "", 8900 }), v("192.0.2.1", none),
			[]string{"mtu is 8950, want 8900", "up0 is not its underlay, mtu is 8950, want 1430"}},
		{"vxlan in a namespace", "vxlan", v("192.0.2.1", func(v *kernel.VXLAN) { v.In = kernel.Container }), []string{"vxlan id 7 local 192.0.2.1", "link-netnsid 0", "UP", "alias " + agentMark},
			v("192.0.2.1", func(v *kernel.VXLAN) { v.In, v.MTU = kernel.Container, 1400 }), v("192.0.2.1", func(v *kernel.VXLAN) { v.In, v.ID = kernel.Container, 9 }),
			[]string{"mtu is 1430, want 1400", "VNI is 7, want 9"}},
		{"ipip", "ipip", ipip("192.0.2.1", 1480), []string{"link/ipip 192.0.2.1 brd 0.0.0.0", "ipip ipip remote any local 192.0.2.1 ttl 64", "mtu 1480", "UP", "alias " + agentMark},
			ipip("192.0.2.1", 1400), ipip("192.0.2.9", 1480), []string{"mtu is 1480, want 1400", "local is 192.0.2.1, want 192.0.2.9"}},
	}
}

func TestTunnels(t *testing.T) {
	t.Parallel()
	for _, c := range tunnelCases() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			kerneltest.Needs(t, c.needs)
			kerneltest.Host(t)
			tunnelUnder(t)
			netns := kerneltest.Netns(t)
			testTunnel(t, c, open(t, netns, kernel.Options{}), netns)
		})
	}
}

func testTunnel(t *testing.T, c tunnelCase, e *kernel.Engine, netns string) {
	one := kernel.Objects{c.object}
	if d, err := e.Compare(one); err != nil || words(d) == "" || !strings.Contains(words(d), "is missing") {
		t.Errorf("before: %v %v", d, err)
	}
	number := ensured(t, e, one)
	for range 2 { // the second time changes nothing
		if again := ensured(t, e, one); again != number {
			t.Errorf("link %d became %d", number, again)
		}
	}
	show := []string{"ip", "-d", "link", "show", nameOf(c.object)}
	dump := ""
	if c.object.Side() == kernel.Container {
		dump = kerneltest.In(t, netns, show...)
	} else {
		dump = kerneltest.Run(t, show...)
	}
	for _, w := range c.want {
		if !strings.Contains(dump, w) {
			t.Errorf("no %q in\n%s", w, dump)
		}
	}
	for i, next := range []kernel.Object{c.adapted, c.created} {
		list := kernel.Objects{next}
		if d, err := e.Compare(list); err != nil || !strings.Contains(words(d), ": "+c.says[i]+"\n") {
			t.Errorf("%s is seen as %v (%v), want %s", next, words(d), err, c.says[i])
		}
		after := ensured(t, e, list)
		if same := after == number; same != (i == 0) {
			t.Errorf("%s: link %d became %d", next, number, after)
		}
		number = ensured(t, e, one)
	}
	if err := e.Remove(one); err != nil {
		t.Fatal(err)
	}
	if d, _ := e.Compare(one); !strings.Contains(words(d), "is missing") {
		t.Errorf("after removal: %v", d)
	}
	if err := e.Remove(one); err != nil {
		t.Errorf("removed again: %v", err)
	}
}

// ensured applies a list of one tunnel and returns the link's index.
func ensured(t *testing.T, e *kernel.Engine, list kernel.Objects) int {
	t.Helper()
	if err := e.Apply(list); err != nil {
		t.Fatal(err)
	}
	e.DiscardUndo()
	if d, err := e.Compare(list); err != nil || len(d) > 0 {
		t.Fatalf("check after apply: %v %v", words(d), err)
	}
	l, err := e.Link(list[0].Side(), nameOf(list[0]))
	if err != nil {
		t.Fatal(err)
	}
	return l.Index
}

func nameOf(o kernel.Object) string { return strings.Fields(o.String())[3] }

// TestThirdPartyTunnel checks that third-party links are neither changed nor removed. A matching link without an alias,
// as flannel leaves it, is adopted without interrupting traffic.
func TestThirdPartyTunnel(t *testing.T) {
	t.Parallel()
	kerneltest.Needs(t, "vxlan")
	kerneltest.Host(t)
	tunnelUnder(t)
	e := open(t, "", kernel.Options{})
	mine := kernel.Objects{vxlan("192.0.2.1")}
	for _, c := range []struct{ make, alias, want string }{
		{"ip link add vx1 type ifb", "", "vx1 exists and is a link of type ifb, not created by this agent"},
		{"ip link add vx1 type vxlan id 9 dstport 8472 local 192.0.2.1 dev up0", "", "vx1 exists, not created by this agent and VNI is 9, want 7, learns addresses"},
		{"ip link add vx1 type vxlan id 7 dstport 8472 local 192.0.2.1 dev up0 nolearning", "somebody else", `vx1 exists and is a link of type vxlan, with the alias "somebody else"`},
	} {
		kerneltest.Run(t, strings.Fields(c.make)...)
		kerneltest.Run(t, "ip", "link", "set", "vx1", "alias", c.alias)
		before := kerneltest.Run(t, "ip", "-d", "link", "show", "vx1")
		if err := e.Apply(mine); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.make, err, c.want)
		}
		if err := e.Remove(mine); err != nil {
			t.Error(err)
		}
		if after := kerneltest.Run(t, "ip", "-d", "link", "show", "vx1"); after != before {
			t.Errorf("changed to\n%s\nwas\n%s", after, before)
		}
		kerneltest.Run(t, "ip", "link", "del", "vx1")
	}
	kerneltest.Run(t, strings.Fields("ip link add vx1 type vxlan id 7 dstport 8472 local 192.0.2.1 dev up0 nolearning")...)
	before, _ := e.Link(kernel.Host, "vx1")
	if after := ensured(t, e, mine); after != before.Index {
		t.Error("a matching link was created again")
	}
}

// TestTunnelPortTaken checks that a second tunnel with the same port and VNI is rejected with advice and leaves nothing,
// and that the error of a port that another program uses says so at each attempt.
func TestTunnelPortTaken(t *testing.T) {
	t.Parallel()
	kerneltest.Needs(t, "vxlan")
	kerneltest.Host(t)
	tunnelUnder(t)
	e := open(t, "", kernel.Options{})
	ensured(t, e, kernel.Objects{vxlan("192.0.2.1")})
	second := vxlan("192.0.2.1")
	second.Name = "vx2"
	if err := e.Apply(kernel.Objects{second}); err == nil || strings.Count(err.Error(), "ip link add vx2") != 1 ||
		!strings.Contains(err.Error(), `another link of this host has the same VNI and UDP port ("ip -d link show type vxlan" lists it)`) {
		t.Errorf("a second one: %v", err)
	}
	if _, err := e.Link(kernel.Host, "vx2"); err == nil {
		t.Error("vx2 was left")
	}
	socket, err := net.ListenPacket("udp4", ":4789")
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	second.Port = 4789
	for range 2 { // the first attempt leaves the link, down
		if err := e.EnsureNow(second); err == nil || !strings.Contains(err.Error(), "another program or tunnel of this host uses UDP port 4789") {
			t.Errorf("a port in use: %v", err)
		}
	}
}

// TestTunnelWithoutUnderlay checks that a tunnel whose underlay does not exist is an error and leaves nothing.
func TestTunnelWithoutUnderlay(t *testing.T) {
	t.Parallel()
	kerneltest.Needs(t, "vxlan")
	kerneltest.Host(t)
	e := open(t, "", kernel.Options{})
	if err := e.Apply(kernel.Objects{vxlan("192.0.2.1")}); err == nil || !strings.Contains(err.Error(), "underlay: ") || !strings.Contains(err.Error(), "up0") {
		t.Errorf("no underlay: %v", err)
	}
	if _, err := e.Link(kernel.Host, "vx1"); err == nil {
		t.Error("vx1 was created")
	}
}
