package agent

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/desired"
	"github.com/fairlead/fairlead/agent/source"
	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// openReconciler returns a reconciler that is closed with the test.
func openReconciler(t *testing.T, c *config.Config) *kernelReconciler {
	t.Helper()
	k, err := newKernelReconciler(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.close)
	return k
}

// TestLoopbackUnderlay checks that the MTU is that of the uplinks if the node's address is on lo, and that no tunnel is
// bound to lo if its MTU is smaller.
func TestLoopbackUnderlay(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	k, err := newKernelReconciler(&config.Config{Addresses: []netip.Addr{netip.MustParseAddr("203.0.113.1")}})
	if err != nil {
		t.Fatal(err)
	}
	defer k.close()
	ip := func(args string) { kerneltest.Run(t, append([]string{"ip"}, strings.Fields(args)...)...) }
	ip("addr add 203.0.113.1/32 dev lo")
	if h, err := k.host(nil, nil); err != nil || h.Underlay.MTU != 1500 {
		t.Errorf("without a default route: got %+v (%v), want the MTU 1500", h.Underlay, err)
	}
	for _, args := range []string{
		"link add p0 type veth peer name q0", "link set p0 up", "link set q0 up", "addr add 192.0.2.1/31 dev p0",
		"link add p1 mtu 1400 type veth peer name q1", "link set p1 up", "link set q1 up", "addr add 192.0.2.3/31 dev p1",
		"route add default nexthop via 192.0.2.0 nexthop via 192.0.2.2",
	} {
		ip(args)
	}
	if h, err := k.host(nil, nil); err != nil || h.Underlay.MTU != 1400 || h.Underlay.Unbound {
		t.Errorf("got %+v (%v), want the MTU 1400, bound to lo", h.Underlay, err)
	}
	ip("link set lo mtu 1300") // less than the uplinks, as a dummy link may have
	if h, err := k.host(nil, nil); err != nil || h.Underlay.MTU != 1400 || !h.Underlay.Unbound {
		t.Errorf("got %+v (%v), want the MTU 1400, not bound to lo", h.Underlay, err)
	}
}

func TestChooseAddresses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ have, asked, prefer, want, problem string }{
		{have: "192.0.2.1/24 192.0.2.9/24 fe80::1/64 fd00::1/64 2001:db8::1/64", want: "192.0.2.1/24 fd00::1/64"},
		{have: "192.0.2.1/24 192.0.2.9/24", asked: "192.0.2.9", want: "192.0.2.9/24"},
		{have: "192.0.2.9/24 192.0.2.1/24", asked: "192.0.2.9", want: "192.0.2.9/24"},
		{have: "192.0.2.1/24 fd00::1/64", asked: "fd00::1", want: "fd00::1/64"},
		{have: "192.0.2.1/24 fd00::1/64 fd00::2/64", asked: "192.0.2.1 fd00::2", want: "192.0.2.1/24 fd00::2/64"},
		{have: "192.0.2.1/24 fd00::1/64", asked: "192.0.2.1 fd00::2", problem: "lacks the configured address fd00::2"},
		{have: "fd00::1/64", asked: "192.0.2.1", problem: "lacks the configured address 192.0.2.1"},
		{have: "192.0.2.1/24 192.0.2.9/24 fd00::1/64 fd00::2/64", prefer: "192.0.2.9 fd00::2", want: "192.0.2.9/24 fd00::2/64"},
		{have: "192.0.2.9/24 192.0.2.1/24 fd00::1/64", prefer: "192.0.2.9 198.51.100.7", want: "192.0.2.9/24 fd00::1/64"},
		{have: "192.0.2.1/24 192.0.2.9/24 192.0.2.7/24", prefer: "192.0.2.7 192.0.2.9", want: "192.0.2.7/24"},
		{have: "127.0.0.1/8 203.0.113.1/32 ::1/128 2001:db8::1/128", want: "203.0.113.1/32 2001:db8::1/128"},
		{have: "127.0.0.1/8 ::1/128", problem: "no address that other nodes could reach"},
		{have: "fe80::1/64", problem: "no address that other nodes could reach"},
		{problem: "no address that other nodes could reach"},
	} {
		var have []netip.Prefix
		var asked, prefer []netip.Addr
		for f := range strings.FieldsSeq(c.have) {
			have = append(have, netip.MustParsePrefix(f))
		}
		for f := range strings.FieldsSeq(c.asked) {
			asked = append(asked, netip.MustParseAddr(f))
		}
		for f := range strings.FieldsSeq(c.prefer) {
			prefer = append(prefer, netip.MustParseAddr(f))
		}
		out, err := chooseAddresses(have, asked, prefer)
		var got []string
		for _, p := range out {
			got = append(got, p.String())
		}
		if strings.Join(got, " ") != c.want || (err != nil) != (c.problem != "") || err != nil && !strings.Contains(err.Error(), c.problem) {
			t.Errorf("of %q with %q: %q, %v; want %q, %q", c.have, c.asked, got, err, c.want, c.problem)
		}
	}
}

// TestSecondAddressKeepsTheFirst checks that a later IPv6 address of the link does not become the node's address, also
// after a restart of the agent. The kernel lists it first. A deprecated address is not kept.
func TestSecondAddressKeepsTheFirst(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	ip := func(args string) { kerneltest.Run(t, append([]string{"ip"}, strings.Fields(args)...)...) }
	open := func() *kernelReconciler {
		k, err := newKernelReconciler(&config.Config{Interface: "eth0"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(k.close)
		return k
	}
	address := func(k *kernelReconciler, published ...netip.Addr) string {
		h, err := k.host(nil, published)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(h.Addresses)
	}
	for _, args := range []string{"link add eth0 type veth peer name eth1", "link set eth0 up", "link set eth1 up", "addr add 2001:db8::1/64 dev eth0 nodad"} {
		ip(args)
	}
	k := open()
	const former, later = "[2001:db8::1/64]", "[2001:db8::53/64]"
	if got := address(k); got != former {
		t.Errorf("got %s, want %s", got, former)
	}
	ip("addr add 2001:db8::53/64 dev eth0 nodad")
	if got := address(k); got != former {
		t.Errorf("with a second address: got %s, want %s", got, former)
	}
	if got := address(open()); got != later {
		t.Errorf("a new agent: got %s, want %s, which the kernel lists first", got, later)
	}
	if got := address(open(), netip.MustParseAddr("2001:db8::1")); got != former {
		t.Errorf("after a restart: got %s, want %s", got, former)
	}
	for _, args := range []string{"addr change 2001:db8::1/64 dev eth0 nodad preferred_lft 0", "addr del 2001:db8::1/64 dev eth0"} {
		ip(args)
		if got := address(k, netip.MustParseAddr("2001:db8::1")); got != later {
			t.Errorf("after ip %s: got %s, want %s", args, got, later)
		}
	}
}

// TestPublishedAddressesOfThisMachine checks that an agent keeps the addresses that this machine published, and not
// those of another machine that had the node's name.
func TestPublishedAddressesOfThisMachine(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{"1": "[2001:db8::1]", "2": "[]"} {
		a := &Agent{o: Options{Config: &config.Config{Node: "a"}}, id: "1", storeCache: newStoreCache(filepath.Join(t.TempDir(), "snapshot"), func() {}, quietLog())}
		document := fmt.Sprintf(`{"id": %q, "addresses": ["2001:db8::1/64"], "hostAddresses": ["192.0.2.1"]}`, id)
		a.storeCache.Reset(source.DecodeAll([]store.Entry{{Key: cluster.NodeKey("a"), Value: []byte(document), Revision: 1}}), 1)
		elsewhere, published := a.knownAddresses()
		if got := fmt.Sprint(published); got != want || fmt.Sprint(elsewhere) != "[192.0.2.1]" {
			t.Errorf("machine %s: got %s and %v, want %s", id, got, elsewhere, want)
		}
	}
}

// TestUnderlayEvents checks that a change of the underlay is noticed whatever the event names: events about IPv6 addresses
// have no name of the link, a label of an IPv4 address may differ from it, and a renamed link has another one.
func TestUnderlayEvents(t *testing.T) {
	t.Parallel()
	ownHost(t)
	ip := func(args string) { kerneltest.Run(t, append([]string{"ip"}, strings.Fields(args)...)...) }
	for _, args := range []string{
		"link add eth0 type veth peer name eth1", "link set eth0 up", "addr add 192.0.2.1/24 dev eth0", "addr add 2001:db8::1/64 dev eth0 nodad",
		"link set eth1 up", "route add default via 192.0.2.254",
	} {
		ip(args)
	}
	k, err := newKernelReconciler(&config.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer k.close()
	go func() { _ = k.run(t.Context()) }()
	k.reconcile(&desired.State{}, true)
	noticed := func(args string, within time.Duration) bool {
		if _, err := k.host(nil, nil); err != nil {
			t.Fatal(err)
		}
		ip(args)
		for end := time.After(within); ; {
			select {
			case h := <-k.events():
				if k.needsResync(h) {
					k.reconcile(&desired.State{}, true)
					return true
				}
			case <-end:
				return false
			}
		}
	}
	noticed("link set lo up", time.Second) // drains the events of the setup
	for _, args := range []string{
		"addr add 2001:db8::9/64 dev eth0 nodad", "addr del 2001:db8::1/64 dev eth0", "addr add 192.0.2.9/24 dev eth0 label eth0:vip",
		"link set eth0 name uplink",
	} {
		if !noticed(args, kerneltest.Slow(5*time.Second)) {
			t.Errorf("ip %s: not noticed", args)
		}
		time.Sleep(100 * time.Millisecond)
		for len(k.events()) > 0 {
			<-k.events()
		}
	}
	if noticed("addr add 2001:db8:1::1/64 dev eth1 nodad", time.Second) {
		t.Error("an address of another link: noticed")
	}
	ip("addr add 198.51.100.1/24 dev eth1")
	if !noticed("route replace default via 198.51.100.254", kerneltest.Slow(5*time.Second)) {
		t.Error("a default route through another link: not noticed")
	}
	if h, err := k.host(nil, nil); err != nil || h.Underlay.Link != "eth1" {
		t.Errorf("after the default route moved: got %+v, %v; want eth1", h, err)
	}
}

// TestUnderlayWithoutDefaultRoute checks that a node whose default route is gone keeps its underlay: the link with the
// addresses that the agent used last, or that the node published before the agent started.
func TestUnderlayWithoutDefaultRoute(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	for _, args := range []string{
		"link add eth0 type veth peer name eth1", "link set eth0 up", "link set eth1 up", "addr add 192.0.2.1/24 dev eth0", "route add default via 192.0.2.254",
	} {
		kerneltest.Run(t, append([]string{"ip"}, strings.Fields(args)...)...)
	}
	open := func() *kernelReconciler { return openReconciler(t, &config.Config{}) }
	k := open()
	if h, err := k.host(nil, nil); err != nil || h.Underlay.Link != "eth0" {
		t.Fatalf("with a default route: got %+v, %v", h, err)
	}
	kerneltest.Run(t, "ip", "route", "del", "default")
	k.invalidate()
	if h, err := k.host(nil, nil); err != nil || h.Underlay.Link != "eth0" {
		t.Errorf("after the default route is gone: got %+v, %v; want eth0", h, err)
	}
	k = open()
	if h, err := k.host(nil, []netip.Addr{netip.MustParseAddr("192.0.2.1")}); err != nil || h.Underlay.Link != "eth0" {
		t.Errorf("with a published address: got %+v, %v; want eth0", h, err)
	}
	if _, err := open().host(nil, []netip.Addr{netip.MustParseAddr("192.0.2.9")}); err == nil {
		t.Error("a published address that no link has: no error")
	}
	for _, args := range []string{"link set lo up", "-6 route add unreachable default metric 4294967295"} {
		kerneltest.Run(t, append([]string{"ip"}, strings.Fields(args)...)...)
	}
	k.invalidate()
	if h, err := k.host(nil, nil); err != nil || h.Underlay.Link != "eth0" {
		t.Errorf("with an unreachable default route, which is on lo: got %+v, %v; want eth0", h, err)
	}
}

// TestUnderlayWithSecondDefaultRoute checks that the better default route of a VPN or of a second network does not become
// the underlay, also after a restart of the agent, while the node's link has a default route. Without it, the other link
// is the underlay until the default route is back.
func TestUnderlayWithSecondDefaultRoute(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	ip := func(args string) { kerneltest.Run(t, append([]string{"ip"}, strings.Fields(args)...)...) }
	open := func() *kernelReconciler { return openReconciler(t, &config.Config{}) }
	for _, args := range []string{
		"link add eth0 type veth peer name peer0", "link set eth0 up", "link set peer0 up", "addr add 192.0.2.1/24 dev eth0",
		"link add vpn0 type veth peer name peer1", "link set vpn0 up", "link set peer1 up", "addr add 198.51.100.1/24 dev vpn0",
		"route add default via 192.0.2.254 metric 100",
	} {
		ip(args)
	}
	k := open()
	underlay := func(after, want string, published ...netip.Addr) {
		t.Helper()
		k.invalidate()
		if h, err := k.host(nil, published); err != nil || h.Underlay.Link != want {
			t.Errorf("after %s: got the underlay %q with %v (%v), want %s", after, h.Underlay.Link, h.Addresses, err, want)
		}
	}
	underlay("the start", "eth0")
	for _, step := range []struct{ args, want string }{
		{"route add default via 198.51.100.254 metric 50", "eth0"},
		{"route del default metric 100", "vpn0"},
		{"route add default via 192.0.2.254 metric 100", "eth0"},
		{"addr replace 192.0.2.7/25 dev eth0", "eth0"},
		{"route del default metric 100", "vpn0"},
		{"addr del 192.0.2.1/24 dev eth0", "vpn0"}, // eth0 keeps 192.0.2.7
		{"route add default via 192.0.2.126 metric 100", "eth0"},
		{"link set eth0 down", "vpn0"},
		{"link set eth0 name ens3 up", "vpn0"},
		{"route add default via 192.0.2.126 metric 100", "ens3"},
	} {
		ip(step.args)
		underlay("ip "+step.args, step.want)
	}
	k = open()
	underlay("a restart", "ens3", netip.MustParseAddr("192.0.2.7"))
	ip("link set vpn0 down")
	underlay("the VPN's end", "ens3", netip.MustParseAddr("192.0.2.7"))
}

// TestMissedEvents checks that the agent finds the largest MTU of the containers' links again if events were lost.
func TestMissedEvents(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	batch := func(lines ...string) {
		file := filepath.Join(t.TempDir(), "batch")
		if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
		kerneltest.Run(t, "ip", "-batch", file)
	}
	batch("link add eth0 type veth peer name eth1", "link set eth0 up", "addr add 192.0.2.1/24 dev eth0", "link set eth1 up", "route add default via 192.0.2.254")
	k, err := newKernelReconciler(&config.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer k.close()
	if h, err := k.host(nil, nil); err != nil || h.MaxLinkMTU != 0 {
		t.Fatalf("got %+v, %v", h, err)
	}
	var many []string
	for i := range 40_000 { // more than the buffer holds
		many = append(many, fmt.Sprintf("route add unreachable 10.%d.%d.0/24 table 77", i>>8, i&255))
	}
	batch(many...)
	batch("link add c0 mtu 1400 type veth peer name c1", fmt.Sprintf("link set c0 group %d", kernel.LinkGroup))
	kerneltest.Run(t, "ip", "link", "set", "c0", "alias", kernel.Owner{Network: "n", ContainerID: "c", IfName: "eth0"}.Tag())
	go func() { _ = k.run(t.Context()) }()
	kerneltest.Until(t, func() bool {
		for len(k.events()) > 0 {
			k.needsResync(<-k.events())
		}
		h, err := k.host(nil, nil)
		return err == nil && h.MaxLinkMTU == 1400
	})
}
