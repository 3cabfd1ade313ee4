package kernel_test

import (
	"encoding/json"
	"errors"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/netns"
)

var owner = kernel.Owner{Network: "net", ContainerID: "c1", IfName: "eth0"}

func open(t *testing.T, nsPath string, o kernel.Options) *kernel.Engine {
	t.Helper()
	var ns *netns.Handle
	if nsPath != "" {
		var err error
		if ns, err = netns.Open(nsPath); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(ns.Close)
	}
	e, err := kernel.Open(ns, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// attachment returns a bridged veth with addresses, routes and sysctls on both sides.
func attachment(o kernel.Owner, ip string) kernel.Objects {
	host := o.LinkName("veth")
	return kernel.Objects{
		&kernel.Bridge{Name: "br0", MAC: kernel.MAC("bridge", "br0"), Promisc: true},
		&kernel.Addr{Link: "br0", Prefix: netip.MustParsePrefix("10.1.0.1/16"), IsShared: true},
		&kernel.Sysctl{Key: "net/ipv4/ip_forward", Value: "1", IfZero: true, IsShared: true},
		&kernel.Veth{Name: host, MAC: o.MAC("host"), PeerSide: kernel.Container, PeerName: o.IfName, PeerMAC: o.MAC("container"), MTU: 1400, Master: "br0", OwnerTag: o.Tag()},
		&kernel.Port{Link: host, Hairpin: true, Isolated: true},
		&kernel.Up{Link: host},
		&kernel.Sysctl{In: kernel.Container, Key: "net/ipv6/conf/eth0/accept_ra", Value: "0", Link: o.IfName, Optional: true},
		&kernel.Addr{In: kernel.Container, Link: o.IfName, Prefix: netip.MustParsePrefix(ip)},
		&kernel.Addr{In: kernel.Container, Link: o.IfName, Prefix: netip.MustParsePrefix("fd00::5/64")},
		&kernel.Up{In: kernel.Container, Link: o.IfName},
		&kernel.Route{In: kernel.Container, Dst: netip.MustParsePrefix("0.0.0.0/0"), Via: netip.MustParseAddr("10.1.0.1"), Link: o.IfName},
		&kernel.Route{In: kernel.Container, Dst: netip.MustParsePrefix("10.9.0.0/16"), Link: o.IfName, Metric: 7, MTU: 1300, AdvMSS: 1200, Table: 300},
		&kernel.Route{In: kernel.Container, Dst: netip.MustParsePrefix("10.10.0.0/16"), Link: o.IfName, MTU: 65536, AdvMSS: 65536}, // the kernel stores smaller values
		&kernel.Rule{In: kernel.Container, Priority: 100, From: netip.MustParsePrefix("10.1.0.0/16"), Table: 300},
		&kernel.Neigh{In: kernel.Container, Link: o.IfName, IP: netip.MustParseAddr("10.1.0.7"), MAC: "02:00:00:00:00:07"},
	}
}

func TestApplyCheckRemove(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	netns := kerneltest.Netns(t)
	before := kerneltest.Dump(t, netns)
	e := open(t, netns, kernel.Options{})
	list := attachment(owner, "10.1.0.5/16")
	if err := e.Apply(list); err != nil {
		t.Fatal(err)
	}
	if d, err := e.Compare(list); err != nil || len(d) != 0 {
		t.Fatalf("check after apply: %v %v", d, err)
	}
	dump := kerneltest.Dump(t, netns)
	for _, want := range []string{
		"inet 10.1.0.5/16 brd 10.1.255.255", "default via 10.1.0.1 dev eth0 proto 102", "mtu 1400",
		"10.9.0.0/16 dev eth0 table 300 proto 102 scope link metric 7 mtu 1300 advmss 1200",
		"100:\tfrom 10.1.0.0/16 lookup 300", "10.1.0.7 dev eth0 lladdr 02:00:00:00:00:07 PERMANENT",
		"inet6 fd00::5/64 scope global nodad", owner.MAC("container"),
	} {
		if !strings.Contains(dump, want) {
			t.Errorf("no %q in\n%s", want, dump)
		}
	}
	if dump := kerneltest.Dump(t, ""); !strings.Contains(dump, owner.Tag()) || !strings.Contains(dump, "hairpin on") || !strings.Contains(dump, "isolated on") {
		t.Errorf("host: no owner, hairpin or isolation in\n%s", dump)
	}
	if err := e.Remove(list); err != nil {
		t.Fatal(err)
	}
	if after := kerneltest.Dump(t, netns); strings.ReplaceAll(after, "100:\tfrom 10.1.0.0/16 lookup 300 proto 102\n", "") != before {
		t.Errorf("left behind:\n%s\nwas:\n%s", after, before)
	}
	if err := e.Remove(list); err != nil {
		t.Errorf("second remove: %v", err)
	}
	if dump := kerneltest.Dump(t, ""); !strings.Contains(dump, "br0") {
		t.Error("the shared bridge is gone")
	}
}

// TestCheckNamesTheObject damages each object in turn and expects the check to report that object.
func TestCheckNamesTheObject(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	netns := kerneltest.Netns(t)
	e := open(t, netns, kernel.Options{})
	list := attachment(owner, "10.1.0.5/16")
	if err := e.Apply(list); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ command, want string }{
		{"ip rule del priority 100", "ip rule add priority 100"},
		{"ip route del 10.9.0.0/16 table 300", "10.9.0.0/16 dev eth0"},
		{"ip route del default", "route add default"},
		{"ip addr del fd00::5/64 dev eth0", "fd00::5/64"},
		{"ip neigh del 10.1.0.7 dev eth0", "10.1.0.7"},
		{"sysctl -qw net.ipv6.conf.eth0.accept_ra=1", "accept_ra"},
		{"ip link set eth0 down", "eth0 up: is down"},
	} {
		kerneltest.In(t, netns, strings.Fields(c.command)...)
		d, err := e.Compare(list)
		if err != nil {
			t.Fatal(err)
		}
		if s := words(d); !strings.Contains(s, c.want) {
			t.Errorf("after %s the check says:\n%s", c.command, s)
		}
	}
	kerneltest.Run(t, "ip", "link", "set", "br0", "down")
	kerneltest.Run(t, "bridge", "link", "set", "dev", owner.LinkName("veth"), "hairpin", "off")
	d, _ := e.Compare(list)
	if s := words(d); !strings.Contains(s, "type bridge: is down") || !strings.Contains(s, "hairpin is off") {
		t.Errorf("the check says:\n%s", s)
	}
}

func words(d []kernel.Difference) string {
	var b strings.Builder
	for _, x := range d {
		b.WriteString(x.String() + "\n")
	}
	return b.String()
}

// TestUndo checks that a failure at any place in the list removes what came before.
func TestUndo(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	netns := kerneltest.Netns(t)
	before, hostBefore := kerneltest.Dump(t, netns), kerneltest.Dump(t, "")
	bad := &kernel.Route{In: kernel.Container, Dst: netip.MustParsePrefix("0.0.0.0/0"), Via: netip.MustParseAddr("192.0.2.1"), Link: "eth0"}
	host := owner.LinkName("veth")
	e := open(t, netns, kernel.Options{})
	err := e.Apply(kernel.Objects{
		&kernel.Veth{Name: host, PeerSide: kernel.Container, PeerName: "eth0", OwnerTag: owner.Tag()},
		&kernel.Up{In: kernel.Container, Link: "eth0"},
		bad,
	})
	if err == nil || !strings.Contains(err.Error(), "route add default via 192.0.2.1 dev eth0") || !errors.Is(err, unix.ENETUNREACH) {
		t.Errorf("error: %v", err)
	}
	if after := kerneltest.Dump(t, netns); after != before {
		t.Errorf("left in the container:\n%s", after)
	}
	if after := kerneltest.Dump(t, ""); after != hostBefore {
		t.Errorf("left on the host:\n%s", after)
	}
}

func TestNamesTaken(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	netns := kerneltest.Netns(t)
	e := open(t, netns, kernel.Options{})
	veth := func(o kernel.Owner) kernel.Objects {
		return kernel.Objects{&kernel.Veth{Name: o.LinkName("veth"), PeerSide: kernel.Container, PeerName: "eth0", OwnerTag: o.Tag()}}
	}
	if err := e.Apply(veth(owner)); err != nil {
		t.Fatal(err)
	}
	if err := e.Apply(veth(owner)); err == nil || !strings.Contains(err.Error(), "an earlier ADD created it") {
		t.Errorf("the same again: %v", err)
	}
	other := kernel.Owner{Network: "net", ContainerID: "c2", IfName: "eth0"}
	if err := e.Apply(veth(other)); err == nil || !strings.Contains(err.Error(), "eth0 already exists in the container") {
		t.Errorf("a second eth0: %v", err)
	}
	kerneltest.Run(t, "ip", "link", "add", "br0", "type", "ifb")
	if err := e.Apply(kernel.Objects{&kernel.Bridge{Name: "br0", MAC: kernel.MAC("x")}}); err == nil || !strings.Contains(err.Error(), "is not a bridge but a link of type ifb") {
		t.Errorf("not a bridge: %v", err)
	}
}

// TestDummyNameTaken checks that a failed ADD and the DEL after it leave an existing interface of that name alone.
func TestDummyNameTaken(t *testing.T) {
	t.Parallel()
	kerneltest.Needs(t, "dummy")
	kerneltest.Host(t)
	netns := kerneltest.Netns(t)
	kerneltest.In(t, netns, "ip", "link", "add", "eth0", "type", "ifb")
	kerneltest.In(t, netns, "ip", "link", "set", "eth0", "alias", "other")
	e := open(t, netns, kernel.Options{})
	list := kernel.Objects{&kernel.Dummy{Name: "eth0", OwnerTag: owner.Tag()}}
	if err := e.Apply(list); err == nil || !strings.Contains(err.Error(), "eth0 already exists in the container") {
		t.Errorf("apply: %v", err)
	}
	if err := e.Remove(list); err != nil {
		t.Errorf("remove: %v", err)
	}
	if l, err := e.Link(kernel.Container, "eth0"); err != nil || l.Alias != "other" {
		t.Errorf("the existing interface is now %+v, %v", l, err)
	}
}

func TestHostDeviceReturns(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	netns := kerneltest.Netns(t)
	kerneltest.Run(t, "ip", "link", "add", "dev0", "up", "type", "ifb")
	kerneltest.Run(t, "ip", "link", "set", "dev0", "alias", "old words")
	m := &kernel.HostDevice{Device: "dev0", Name: "net1", OwnerTag: kernel.HostDeviceTag(owner, "dev0"), PreviousAlias: "old words", PreviousUp: true}
	e := open(t, netns, kernel.Options{})
	if err := e.Apply(kernel.Objects{m}); err != nil {
		t.Fatal(err)
	}
	if d, err := e.Compare(kernel.Objects{m}); err != nil || len(d) > 0 {
		t.Fatalf("check: %v %v", d, err)
	}
	kerneltest.In(t, netns, "ip", "link", "set", "net1", "name", "renamed")
	if err := e.Remove(kernel.Objects{m}); err != nil {
		t.Fatal(err)
	}
	if s := kerneltest.Run(t, "ip", "-d", "link", "show", "dev0"); !strings.Contains(s, "alias old words") || !strings.Contains(s, "UP") {
		t.Errorf("came home as\n%s", s)
	}
}

func TestObjectsAsJSON(t *testing.T) {
	t.Parallel()
	list := attachment(owner, "10.1.0.5/16")
	list = append(list, masquerade("10.1.0.5")...)
	list = append(list, &kernel.HostDevice{Device: "a", Name: "b"}, &kernel.PortVLAN{Link: "x", First: 2, Last: 9}, &kernel.Command{Do: []string{"true"}},
		&kernel.ConntrackFlows{Port: 53, Target: netip.MustParseAddr("10.1.0.5")}, vxlan("2001:db8::1"), &kernel.IPIP{Name: "t", Local: addr("192.0.2.1")}, wireguard(t, 2))
	raw, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	var back kernel.Objects
	if err := json.Unmarshal(raw, &back); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(list, back) {
		t.Errorf("read back as\n%v\nwrote\n%v", back, list)
	}
	if err := json.Unmarshal([]byte(`[{"kind":"nonsense","object":{}}]`), &back); err == nil {
		t.Error("an unknown kind was read")
	}
}

// TestRemoveReferencePair checks that a pair of the reference plugin is found by its container end, and that another
// owner's pair stays.
func TestRemoveReferencePair(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	netns := kerneltest.Netns(t)
	e := open(t, netns, kernel.Options{})
	veth := func(o kernel.Owner) kernel.Objects {
		return kernel.Objects{&kernel.Veth{Name: o.LinkName("veth"), PeerSide: kernel.Container, PeerName: "eth0", OwnerTag: o.Tag()}}
	}
	kerneltest.Run(t, "ip", "link", "add", "veth0a1b2c3d", "type", "veth", "peer", "name", "eth0", "netns", netns)
	if err := e.Remove(veth(owner)); err != nil {
		t.Fatal(err)
	}
	if s := kerneltest.Dump(t, ""); strings.Contains(s, "veth0a1b2c3d") {
		t.Error("the foreign pair is still there")
	}
	kerneltest.Run(t, "ip", "link", "add", "vethsomebody", "type", "veth", "peer", "name", "eth0", "netns", netns)
	if err := e.Remove(veth(owner)); err != nil {
		t.Fatal(err)
	}
	kerneltest.Run(t, "ip", "link", "del", "vethsomebody") // it still exists
	other := kernel.Owner{Network: "other", ContainerID: "c1", IfName: "eth0"}
	if err := e.Apply(veth(other)); err != nil {
		t.Fatal(err)
	}
	if err := e.Remove(veth(owner)); err != nil {
		t.Fatal(err)
	}
	if s := kerneltest.Dump(t, ""); !strings.Contains(s, other.Tag()) {
		t.Error("a pair of another owner is gone")
	}
}

// TestPeerNameTaken checks that the error says in which namespace the name is taken.
func TestPeerNameTaken(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	kerneltest.Run(t, "ip", "link", "add", "br0.100", "type", "bridge")
	v := &kernel.Veth{Name: "port", PeerSide: kernel.Host, PeerName: "br0.100", IsShared: true}
	if err := open(t, "", kernel.Options{}).Apply(kernel.Objects{v}); err == nil || !strings.Contains(err.Error(), "interface br0.100 already exists in the host") {
		t.Errorf("got %v", err)
	}
}

// TestLinkAddrsStable checks that temporary and deprecated addresses come after stable ones, although the kernel lists the
// newest address first, and that duplicate ones are absent.
func TestLinkAddrsStable(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	for _, args := range []string{
		"link add p0 type veth peer name p1", "link set p1 up", "link set p0 up",
		"addr add 2001:db8::1/64 dev p0 nodad",
		"addr add 2001:db8::2/64 dev p0 nodad preferred_lft 0 valid_lft 1000",
		"addr add 2001:db8::3/64 dev p1 nodad", "addr add 2001:db8::3/64 dev p0",
	} {
		kerneltest.Run(t, append([]string{"ip"}, strings.Fields(args)...)...)
	}
	kerneltest.Run(t, "sysctl", "-qw", "net.ipv6.conf.p0.use_tempaddr=2")
	kerneltest.Run(t, "ip", "addr", "add", "2001:db8:1::1/64", "dev", "p0", "nodad", "mngtmpaddr")
	kerneltest.Until(t, func() bool {
		out := kerneltest.Run(t, "ip", "addr", "show", "dev", "p0")
		return strings.Contains(out, "dadfailed") && strings.Contains(out, "temporary") && strings.Contains(out, "deprecated")
	})
	_, list, unstable, err := open(t, "", kernel.Options{}).LinkAddrs("p0")
	var stable []string
	for _, p := range list {
		stable = append(stable, p.Addr().String())
	}
	slices.Sort(stable)
	if err != nil || len(unstable) != 2 || slices.ContainsFunc(unstable, func(p netip.Prefix) bool { return p.Addr().String() == "2001:db8::3" }) || !slices.Equal(stable, []string{"2001:db8:1::1", "2001:db8::1"}) {
		t.Errorf("got %v and %v (%v), want two stable addresses and two others", list, unstable, err)
	}
}

// TestFlowsOfExcludedClients checks that a flow to the host itself is no difference if the port mapping has conditions, and
// that one to another container is.
func TestFlowsOfExcludedClients(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	kerneltest.Run(t, "ip", "addr", "add", "192.0.2.1/24", "dev", "lo")
	e := open(t, kerneltest.Netns(t), kernel.Options{})
	flow := func(more ...string) {
		kerneltest.Run(t, append([]string{"conntrack", "-I", "-p", "udp", "-s", "192.0.2.9", "-d", "192.0.2.1", "--dport", "53", "-t", "60", "-u", "SEEN_REPLY"}, more...)...)
	}
	flow("--sport", "999")
	for conditional, want := range map[bool]int{false: 1, true: 0} {
		list := kernel.Objects{&kernel.ConntrackFlows{Port: 53, Target: addr("10.1.0.5"), Conditional: conditional}}
		if d, err := e.Compare(list); err != nil || len(d) != want {
			t.Errorf("conditional %v: %v\n%s", conditional, err, words(d))
		}
	}
	flow("--sport", "998", "-r", "10.1.0.6", "-q", "192.0.2.9", "--reply-port-src", "53", "--reply-port-dst", "998")
	list := kernel.Objects{&kernel.ConntrackFlows{Port: 53, Target: addr("10.1.0.5"), Conditional: true}}
	if d, err := e.Compare(list); err != nil || len(d) != 1 {
		t.Errorf("to another container: %v\n%s", err, words(d))
	}
}
