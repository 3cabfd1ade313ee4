package reconcile_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/reconcile"
)

func agentOwner() reconcile.Owner {
	return reconcile.Owner{Protocol: 103, Alias: "fairlead-agent ", Table: "fairlead-agent"}
}

// existingVXLAN creates a link with an address and, with ip(8), a VXLAN device on it whose alias is the agent's.
func existingVXLAN(t *testing.T) {
	t.Helper()
	for _, c := range []string{
		"ip link set lo up",
		"ip link add eth0 type veth peer name eth0p", "ip link set eth0 up", "ip link set eth0p up",
		"ip addr add 192.0.2.1/24 dev eth0", "ip -6 addr add 2001:db8::1/64 dev eth0 nodad",
		"ip link add vx type vxlan id 7 dstport 8472 local 192.0.2.1 dev eth0 nolearning", "ip link set vx alias fairlead-agent%vx", "ip link set vx up",
	} {
		f := strings.Fields(c)
		for i := range f {
			f[i] = strings.ReplaceAll(f[i], "%", " ")
		}
		kerneltest.Run(t, f...)
	}
}

// vx is the device that existingVXLAN created.
func vx() kernel.Objects {
	return kernel.Objects{&kernel.VXLAN{
		Name: "vx", ID: 7, Port: 8472, Local: netip.MustParseAddr("192.0.2.1"), Link: "eth0", MTU: 1450, OwnerTag: "fairlead-agent vx",
	}}
}

func peers(n int) (out kernel.Objects) {
	for i := range n {
		ip := netip.AddrFrom4([4]byte{10, byte(128 + i>>8), byte(i), 0})
		mac := fmt.Sprintf("02:00:00:00:%02x:%02x", i>>8, i&255)
		out = append(out,
			&kernel.Neigh{Link: "vx", IP: ip, MAC: mac, Proto: 103},
			&kernel.FDB{Link: "vx", MAC: mac, Dst: netip.AddrFrom4([4]byte{192, 0, 2, byte(2 + i%200)})},
			&kernel.Route{Dst: netip.PrefixFrom(ip, 24), Via: ip, Link: "vx", OnLink: true})
	}
	return out
}

func addresses(first string, n int) (out []netip.Addr) {
	a := netip.MustParseAddr(first)
	for range n {
		out = append(out, a)
		a = a.Next()
	}
	return out
}

func ruleset() kernel.Objects {
	nft := func(what, name, text string) *kernel.NFT {
		return &kernel.NFT{Family: "inet", Table: "fairlead-agent", Kind: what, Name: name, Text: text}
	}
	return kernel.Objects{
		nft("chain", "postrouting", "type nat hook postrouting priority 105; policy accept"),
		nft("set", "excluded", "ipv4_addr"),
		&kernel.NFT{Family: "inet", Table: "fairlead-agent", Kind: "set", Name: "hosts", Text: "ipv4_addr", Addrs: addresses("192.0.2.7", 2500)},
		&kernel.NFT{Family: "inet", Table: "fairlead-agent", Kind: "set", Name: "hosts6", Text: "ipv6_addr", Addrs: addresses("2001:db8::7", 2500)},
		nft("chain", "guard", ""),
		nft("rule", "guard", "iifgroup 1718353921 ip6 saddr @hosts6 drop"),
		nft("rule", "guard", "udp dport 8472 @th,96,24 0x12d ip saddr @hosts return"),
		nft("rule", "postrouting", "ip daddr 10.128.0.0/9 return"),
		nft("rule", "postrouting", "ip saddr 10.128.0.0/12 masquerade"),
		&kernel.Element{Family: "inet", Table: "fairlead-agent", Set: "excluded", Type: "ipv4_addr", Key: "10.128.0.1"},
	}
}

func reconciler(t *testing.T) (*kernel.Engine, *reconcile.Reconciler) {
	t.Helper()
	e, err := kernel.Open(nil, kernel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e, reconcile.New(e, kernel.Host, agentOwner())
}

func reconcileOnce(t *testing.T, r *reconcile.Reconciler, want kernel.Objects) *reconcile.Report {
	t.Helper()
	rep := r.Reconcile(want)
	if err := rep.Err(); err != nil {
		t.Fatal(err)
	}
	return rep
}

// TestReconcile checks that a Reconcile reaches the desired state from any state, and that a second one changes
// nothing, with and without listing.
func TestReconcile(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	existingVXLAN(t)
	_, r := reconciler(t)
	link := vx()
	want := append(append(vx(), peers(300)...), ruleset()...)
	want = append(want,
		&kernel.Route{Dst: netip.MustParsePrefix("10.9.0.0/16"), Type: kernel.Unreachable},
		&kernel.Route{Dst: netip.MustParsePrefix("10.7.0.0/16"), Link: "eth0", MTU: 65535}, // the kernel stores a smaller value
		&kernel.Route{Dst: netip.MustParsePrefix("fd00:9::/64"), Type: kernel.Unreachable},
		&kernel.Route{Dst: netip.MustParsePrefix("fd00:1::/64"), Via: netip.MustParseAddr("2001:db8::7"), Link: "eth0"},
		&kernel.Route{Dst: netip.MustParsePrefix("10.8.0.0/16"), Link: "eth0", Hops: []kernel.Hop{{Via: netip.MustParseAddr("192.0.2.7"), Weight: 1}, {Via: netip.MustParseAddr("192.0.2.8"), Weight: 1}}},
		&kernel.Rule{Priority: 900, From: netip.MustParsePrefix("10.7.0.0/16"), Table: 77},
	)
	if rep := reconcileOnce(t, r, want); rep.Applied < 900 || !rep.Listed {
		t.Errorf("made %d, listed %v: want about 900 objects", rep.Applied, rep.Listed)
	}
	listed := kerneltest.Run(t, "nft", "list", "table", "inet", "fairlead-agent")
	for _, w := range []string{"192.0.2.7", "192.0.11.202", "2001:db8::9ca", "iifgroup 1718353921 ip6 saddr @hosts6 drop", "udp dport 8472 @th,96,24 0x12d ip saddr @hosts return"} {
		if !strings.Contains(listed, w) {
			t.Errorf("nft does not list %s:\n%s", w, listed)
		}
	}
	for _, how := range []string{"remembering", "listing"} {
		if rep := reconcileOnce(t, r, want); rep.Applied+rep.Removed != 0 {
			t.Errorf("%s, a second time: made %d and removed %d: %q", how, rep.Applied, rep.Removed, rep.Changes)
		}
		r.Invalidate()
	}
	_, fresh := reconciler(t) // as after a restart of the agent
	if rep := reconcileOnce(t, fresh, want); rep.Applied+rep.Removed != 0 {
		t.Errorf("a new one made %d and removed %d: %q", rep.Applied, rep.Removed, rep.Changes)
	}
	if rep := reconcileOnce(t, fresh, link); rep.Removed < 900 {
		t.Errorf("removed %d of about 900", rep.Removed)
	}
	if got := kerneltest.Run(t, "ip", "route", "show", "proto", "103"); got != "" {
		t.Errorf("routes are left:\n%s", got)
	}
	if got := kerneltest.Run(t, "nft", "list", "tables"); strings.Contains(got, "fairlead-agent") {
		t.Errorf("the table is left: %s", got)
	}
	if rep := reconcileOnce(t, fresh, nil); rep.Removed != 1 {
		t.Errorf("removed %d, want the device alone: %q", rep.Removed, rep.Changes)
	}
}

// TestReconcileKeepsThirdPartyRoutes checks that routes of an administrator are neither removed nor replaced.
func TestReconcileKeepsThirdPartyRoutes(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	existingVXLAN(t)
	kerneltest.Run(t, "ip", "route", "add", "10.128.0.0/24", "via", "192.0.2.9", "proto", "static")
	kerneltest.Run(t, "ip", "route", "add", "10.50.0.0/24", "via", "192.0.2.9")
	_, r := reconciler(t)
	rep := r.Reconcile(append(vx(), peers(2)...))
	if err := rep.Err(); err == nil || !strings.Contains(err.Error(), "10.128.0.0/24") || !strings.Contains(err.Error(), "a third-party object is in the way") {
		t.Errorf("the error is %v: want one that names the route in the way", err)
	}
	got := kerneltest.Run(t, "ip", "route")
	for _, line := range []string{"10.128.0.0/24 via 192.0.2.9", "10.50.0.0/24 via 192.0.2.9", "10.128.1.0/24 via 10.128.1.0 dev vx proto 103 onlink"} {
		if !strings.Contains(got, line) {
			t.Errorf("no %q in\n%s", line, got)
		}
	}
}

// TestReconcileKeepsThirdPartyLinks checks that a third-party link with the name of a wanted one gets no addresses,
// neighbours and routes, and that nothing is reported but the link.
func TestReconcileKeepsThirdPartyLinks(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"type veth peer name vxp", "type vxlan id 9 dstport 4789 local 192.0.2.1 dev eth0"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			kerneltest.Host(t)
			existingVXLAN(t)
			kerneltest.Run(t, "ip", "link", "del", "vx")
			kerneltest.Run(t, append([]string{"ip", "link", "add", "vx", "up"}, strings.Fields(how)...)...)
			show := func() (out string) {
				for _, what := range []string{"-d link", "addr", "neigh", "route"} {
					out += kerneltest.Run(t, append([]string{"ip"}, append(strings.Fields(what), "show", "dev", "vx")...)...)
				}
				return out + kerneltest.Run(t, "bridge", "fdb", "show", "dev", "vx")
			}
			before := show()
			_, r := reconciler(t)
			want := append(vx(), &kernel.Addr{Link: "vx", Prefix: netip.MustParsePrefix("10.1.0.0/32")})
			for range 2 {
				rep := r.Reconcile(append(want, peers(2)...))
				if len(rep.Errors) != 1 || !strings.Contains(rep.Errors[0].Error(), "vx exists") || rep.Applied != 0 {
					t.Errorf("errors %v, applied %q; want one about the link", rep.Errors, rep.Changes)
				}
			}
			if after := show(); after != before {
				t.Errorf("the link was changed to\n%s\nwas\n%s", after, before)
			}
			kerneltest.Run(t, "ip", "link", "del", "vx")
			if rep := reconcileOnce(t, r, append(want, peers(2)...)); rep.Applied != 8 {
				t.Errorf("without that link, applied %q; want 8 objects", rep.Changes)
			}
		})
	}
}

// TestRejectedRoute checks that the changes of other software are still noticed if the kernel rejects a route, and that the
// route is tried again.
func TestRejectedRoute(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	existingVXLAN(t)
	_, r := reconciler(t)
	events := monitor(t)
	good := &kernel.Route{Dst: netip.MustParsePrefix("10.1.0.0/24"), Link: "eth0", Via: netip.MustParseAddr("192.0.2.9")}
	want := append(vx(), good, &kernel.Route{Dst: netip.MustParsePrefix("10.2.0.0/24"), Link: "eth0", Via: netip.MustParseAddr("198.51.100.2")})
	for range 2 {
		if rep := r.Reconcile(want); len(rep.Errors) != 1 {
			t.Fatalf("errors %v, want that of one route", rep.Errors)
		}
	}
	kerneltest.Run(t, "ip", "route", "del", "10.1.0.0/24")
	await(t, events, "the deletion of a route", func(ev reconcile.Event) bool { return r.NeedsResync(ev, nil) })
	kerneltest.Run(t, "ip", "address", "add", "198.51.100.1/24", "dev", "eth0")
	if rep := r.Reconcile(want); len(rep.Errors) != 0 || rep.Applied != 2 {
		t.Errorf("errors %v, applied %q; want two routes", rep.Errors, rep.Changes)
	}
}

// monitor returns the events of the test's namespace.
func monitor(t *testing.T) <-chan []reconcile.Event {
	t.Helper()
	m, err := reconcile.NewMonitor()
	if err != nil {
		t.Fatal(err)
	}
	events := make(chan []reconcile.Event, 10000)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = m.Run(ctx, func(ev []reconcile.Event) { events <- ev }) }()
	t.Cleanup(func() { cancel(); <-done })
	return events
}

// TestChangedLinkNeedsResync changes one attribute of a device that has no routes and no neighbours, so only the event
// about the link tells.
func TestChangedLinkNeedsResync(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	existingVXLAN(t)
	_, r := reconciler(t)
	want := vx()
	want[0].(*kernel.VXLAN).MAC = "02:00:00:00:00:77"
	events := monitor(t)
	for _, change := range []string{"address 02:00:00:00:00:66", "mtu 1300", "down", "alias other"} {
		reconcileOnce(t, r, want)
		if rep := reconcileOnce(t, r, want); rep.Applied != 0 {
			t.Fatalf("before %s: applied %q", change, rep.Changes)
		}
		kerneltest.Run(t, "ip", "route", "add", "unreachable", "10.99.0.0/16") // its event comes after those of the reconciler
		await(t, events, change, func(ev reconcile.Event) bool {
			r.NeedsResync(ev, nil)
			return strings.Contains(ev.Describe(), "0a630000") // 10.99.0.0
		})
		kerneltest.Run(t, "ip", "route", "del", "unreachable", "10.99.0.0/16")
		kerneltest.Run(t, append([]string{"ip", "link", "set", "vx"}, strings.Fields(change)...)...)
		await(t, events, change, func(ev reconcile.Event) bool { return r.NeedsResync(ev, nil) })
	}
}

// TestChangedTable checks that a resync restores the table, whatever part of it was changed.
func TestChangedTable(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	_, r := reconciler(t)
	want := ruleset()
	want = append(want, &kernel.NFT{Family: "inet", Table: "fairlead-agent", Kind: "chain", Name: "empty"})
	reconcileOnce(t, r, want)
	list := func() string {
		return kerneltest.Run(t, "nft", "--stateless", "list", "table", "inet", "fairlead-agent")
	}
	before := list()
	for _, by := range []string{
		"add table inet fairlead-agent { flags dormant; }", "add chain inet fairlead-agent postrouting { policy drop; }", "delete chain inet fairlead-agent empty",
		"flush set inet fairlead-agent excluded", "flush chain inet fairlead-agent guard",
	} {
		kerneltest.Run(t, "nft", by)
		if list() == before {
			t.Fatalf("nft %s: changed nothing", by)
		}
		r.Invalidate()
		reconcileOnce(t, r, want)
		kerneltest.Eventually(t, func() error { // nft was seen to list an element twice, just after it was added again
			if got := list(); got != before {
				return fmt.Errorf("nft %s: the table is still\n%.600s", by, got)
			}
			return nil
		})
	}
	r.Invalidate()
	if rep := reconcileOnce(t, r, want); rep.Applied != 0 {
		t.Errorf("nothing was changed, and the resync applied %q", rep.Changes)
	}
}

// await returns when an event satisfies a condition.
func await(t *testing.T, events <-chan []reconcile.Event, what string, ok func(reconcile.Event) bool) {
	t.Helper()
	for end := time.After(kerneltest.Slow(10 * time.Second)); ; {
		select {
		case list := <-events:
			if slices.ContainsFunc(list, ok) {
				return
			}
		case <-end:
			t.Fatalf("%s: no event", what)
		}
	}
}

// TestNeedsResync checks that manual changes to the agent's objects are noticed, and the agent's own changes are not.
func TestNeedsResync(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	existingVXLAN(t)
	_, r := reconciler(t)
	events := monitor(t)
	device := vx()
	const mac = "02:00:00:00:00:77"
	device[0].(*kernel.VXLAN).MAC = mac
	want := append(append(device, peers(20)...), ruleset()...)
	last := ""
	marks := 0
	// noticed reports whether an event so far contradicts the wanted state. It ends with events that it causes itself, on
	// both sockets of the monitor: each socket reports in order.
	noticed := func() bool {
		marks++
		table := fmt.Sprintf("mark%dx", marks)
		kerneltest.Run(t, "ip", "route", "add", "unreachable", fmt.Sprintf("10.99.%d.0/24", marks))
		kerneltest.Run(t, "nft", "add", "table", "ip", table)
		ends := map[string]bool{fmt.Sprintf("0a63%02x00", marks): false, fmt.Sprintf("%x", table): false}
		bad := false
		await(t, events, "the test's own changes", func(ev reconcile.Event) bool {
			if r.NeedsResync(ev, func(link string, _ int) bool { return link == "eth0" }) {
				bad, last = true, ev.Describe()
			}
			all := true
			for mark, seen := range ends {
				ends[mark] = seen || strings.Contains(ev.Describe(), mark)
				all = all && ends[mark]
			}
			return all
		})
		return bad
	}
	kerneltest.Until(t, func() bool { // the kernel reports a link's carrier late
		return strings.Count(kerneltest.Run(t, "ip", "-o", "link", "show", "type", "veth"), "state UP") == 2
	})
	noticed()
	reconcileOnce(t, r, want)
	if noticed() {
		t.Fatalf("what it made itself contradicts it: %s", last)
	}
	for _, by := range []string{
		"ip route del 10.128.3.0/24", "ip route replace 10.128.3.0/24 via 192.0.2.9", "ip neigh del 10.128.4.0 dev vx",
		"ip neigh change 10.128.4.0 lladdr 02:00:00:00:00:98 dev vx nud failed", "ip neigh replace 10.128.4.0 lladdr 02:00:00:00:00:97 dev vx nud stale",
		"ip neigh replace 10.128.4.0 lladdr 02:00:00:00:00:99 dev vx nud permanent",
		"bridge fdb del 02:00:00:00:00:05 dev vx", "bridge fdb replace 02:00:00:00:00:05 dev vx dst 192.0.2.99", "ip link set vx down", "ip link set vx mtu 1300", "ip link set vx address 02:00:00:00:00:66",
		"nft delete element inet fairlead-agent hosts { 192.0.2.9 }", "nft flush chain inet fairlead-agent postrouting", "nft delete table inet fairlead-agent", "ip link set eth0 mtu 1400", "ip link del vx",
	} {
		kerneltest.Run(t, strings.Fields(by)...)
		if !noticed() {
			t.Errorf("%s: not noticed", by)
		}
		if by == "ip route replace 10.128.3.0/24 via 192.0.2.9" { // now the administrator's route
			kerneltest.Run(t, "ip", "route", "del", "10.128.3.0/24")
		}
		if by == "ip link del vx" {
			break
		}
		rep := reconcileOnce(t, r, want)
		if rep.Applied == 0 && by != "ip link set eth0 mtu 1400" {
			t.Errorf("%s: nothing was repaired", by)
		}
		if got := kerneltest.Run(t, "ip", "link", "show", "vx"); !strings.Contains(got, mac) {
			t.Errorf("%s: the device's address is not %s:\n%s", by, mac, got)
		}
		contradicts := noticed()
		if contradicts && strings.HasSuffix(by, "nud failed") {
			// The kernel drops failed entries at some time, and may report that after the repair.
			reconcileOnce(t, r, want)
			contradicts = noticed()
		}
		if contradicts {
			t.Errorf("%s: the repair itself looks like a contradiction: %s", by, last)
		}
	}
	kerneltest.Run(t, "ip", "link", "set", "eth0", "mtu", "1500") // vx needs 1450
	reconcileOnce(t, r, want)
	noticed() // the new device changes eth0, its lower link
	reconcileOnce(t, r, want)
	for _, by := range []string{
		"ip route add 10.77.0.0/16 via 192.0.2.9", "ip addr add 10.66.0.1/32 dev lo", "nft add table inet other",
		"sysctl -qw net.ipv4.ip_forward=1", "ip link add pod type veth peer name pod1",
	} {
		kerneltest.Run(t, strings.Fields(by)...)
		if noticed() {
			t.Errorf("%s: noticed, although it is not about our objects", by)
		}
	}
}
