package agent

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/backend"
	"github.com/fairlead/fairlead/agent/backend/bgp"
	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/desired"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestRefusedRoutes checks that a next hop which is on none of the node's links concerns that route only. Other errors are
// the node's.
func TestRefusedRoutes(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	kerneltest.Run(t, "ip", "link", "add", "up0", "type", "veth", "peer", "name", "up1")
	kerneltest.Run(t, "ip", "link", "set", "up0", "up")
	kerneltest.Run(t, "ip", "link", "set", "up1", "up")
	kerneltest.Run(t, "ip", "address", "add", "192.0.2.1/24", "dev", "up0")
	k, err := newKernelReconciler(&config.Config{Interface: "up0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.close)
	route := func(dst, via string) *kernel.Route {
		return &kernel.Route{Dst: netip.MustParsePrefix(dst), Link: "up0", Via: netip.MustParseAddr(via), Proto: backend.Protocol}
	}
	several := route("10.4.0.0/24", "198.51.100.3")
	several.Via = netip.Addr{}
	several.Hops = []kernel.Hop{{Via: netip.MustParseAddr("198.51.100.3"), Weight: 1}, {Via: netip.MustParseAddr("198.51.100.4"), Weight: 1}}
	noLink := route("10.5.0.0/24", "192.0.2.9")
	noLink.Link = "up9"
	rep := k.reconcile(&desired.State{Objects: kernel.Objects{
		route("10.1.0.0/24", "192.0.2.2"), route("10.2.0.0/24", "198.51.100.2"), several, noLink,
	}}, true)
	var hops []string
	for _, p := range refusedRoutes(rep) {
		hops = append(hops, p.Node)
		if p.OfThisNode() || !strings.Contains(p.Err.Error(), "ip route add 10.") {
			t.Errorf("%+v", p)
		}
	}
	if got := strings.Join(hops, ", "); got != "next hop 198.51.100.2, next hop 198.51.100.3" {
		t.Errorf("next hops %s", got)
	}
	if len(rep.Errors) != 1 || !strings.Contains(rep.Errors[0].Error(), "up9") {
		t.Errorf("errors of the node: %v", rep.Errors)
	}
	if out := kerneltest.Run(t, "ip", "route", "show", "proto", "103"); strings.TrimSpace(out) != "10.1.0.0/24 via 192.0.2.2 dev up0" {
		t.Errorf("routes:\n%s", out)
	}
}

// TestWithoutFamily checks that a node announces only prefixes of families of which it has an address.
func TestWithoutFamily(t *testing.T) {
	t.Parallel()
	v4, v6 := netip.MustParsePrefix("10.244.1.0/26"), netip.MustParsePrefix("fd00::/122")
	for _, local := range []string{"192.0.2.1", "2001:db8::1", "192.0.2.1 2001:db8::1"} {
		c := &bgp.Config{Advertise: []netip.Prefix{v4, v6}}
		for f := range strings.FieldsSeq(local) {
			c.Local = append(c.Local, netip.MustParseAddr(f))
		}
		silent := withoutFamily(c)
		if slices.Contains(c.Advertise, v4) != strings.Contains(local, ".") || slices.Contains(c.Advertise, v6) != strings.Contains(local, ":") || len(silent)+len(c.Advertise) != 2 {
			t.Errorf("%s: announces %v, not %v", local, c.Advertise, silent)
		}
	}
	if withoutFamily(nil) != nil {
		t.Error("a node without BGP has prefixes")
	}
}
