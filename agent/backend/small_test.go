package backend_test

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/backend"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/kernel"
)

// TestSmallUnderlay checks that a tunnel whose MTU is too small for IPv6 still carries IPv4, and that the result has one
// problem that names the MTUs.
func TestSmallUnderlay(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		typ     string
		flannel bool
		mtu     int
		link    string
		left    string
	}{
		{cluster.VXLAN, false, 1280, "fl-vx.1", "1230"}, {cluster.WireGuard, false, 1339, "fl-wg", "1279"},
		{cluster.VXLAN, true, 1349, "flannel-v6.1", "1279"}, {typ: cluster.VXLAN, mtu: 1330}, {typ: cluster.HostGW, mtu: 1200},
	} {
		in := site(network(cluster.Backend{Type: c.typ}))
		in.Underlay.MTU, in.Flannel = c.mtu, c.flannel
		if c.typ == cluster.HostGW {
			in.Peers = in.Peers[:1] // the peer on the same link
		}
		r := backend.Compile(in)
		var four, six int
		for _, route := range kernel.Of[*kernel.Route](r.Objects) {
			if route.Dst.Addr().Is4() {
				four++
			} else if six++; route.Link == c.link {
				t.Errorf("%s, MTU %d: route %s", c.typ, c.mtu, route)
			}
		}
		if four == 0 || c.link == "" && (six == 0 || len(r.Problems) > 0) {
			t.Errorf("%s, MTU %d: %d IPv4 and %d IPv6 routes, problems %v", c.typ, c.mtu, four, six, r.Problems)
		}
		if c.link != "" && (len(r.Problems) != 1 || r.Problems[0].Node != "IPv6 through "+c.link || !strings.Contains(r.Problems[0].Err.Error(), "leaves "+c.left)) {
			t.Errorf("%s, MTU %d: got the problems %v, want one about %s and %s", c.typ, c.mtu, r.Problems, c.link, c.left)
		}
		if want := max(c.mtu, cluster.MinMTU6); c.typ == cluster.HostGW && r.MTU != want || r.MTU < cluster.MinMTU6 {
			t.Errorf("%s, MTU %d: containers have the MTU %d", c.typ, c.mtu, r.MTU)
		}
	}
}
