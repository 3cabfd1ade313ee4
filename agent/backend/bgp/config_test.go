package bgp_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/backend"
	"github.com/fairlead/fairlead/agent/backend/bgp"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/kernel"
)

func prefixes(s string) (out []netip.Prefix) {
	for f := range strings.FieldsSeq(s) {
		out = append(out, netip.MustParsePrefix(f))
	}
	return out
}

func TestConfigure(t *testing.T) {
	t.Parallel()
	nodes := []*cluster.Node{
		{Name: "c", Addresses: prefixes("198.51.100.3/24")}, {Name: "a", Addresses: prefixes("192.0.2.1/24 2001:db8::1/64")},
		{Name: "b", Addresses: prefixes("2001:db8::2/64")}, {Name: "d", Addresses: prefixes("192.0.2.4/24")},
	}
	routers := []cluster.Peer{{Address: netip.MustParseAddr("192.0.2.254"), ASN: 65000}, {Address: netip.MustParseAddr("192.0.2.253")}}
	for _, c := range []struct {
		name string
		conf cluster.Backend
		self int
		want string
	}{
		{"the nodes, each with each", cluster.Backend{}, 1,
			"{64512 192.0.2.1 [192.0.2.1 2001:db8::1] 0 [{192.0.2.4 64512 0 false false} {198.51.100.3 64512 0 false false} {2001:db8::2 64512 0 false false}] [10.244.0.0/26 10.244.9.0/26]}"},
		{"routers, of another network and of this", cluster.Backend{ASN: 64999, BGPPeer: routers}, 3,
			"{64999 192.0.2.4 [192.0.2.4] 0 [{192.0.2.253 64999 0 false true} {192.0.2.254 65000 0 false true}] [10.244.0.0/26 10.244.9.0/26]}"},
		{"without IPv4", cluster.Backend{}, 2, "{64512 247.12.45.229 [2001:db8::2] 0 [{2001:db8::1 64512 0 true false}] [10.244.0.0/26 10.244.9.0/26]}"},
	} {
		if got := fmt.Sprint(bgp.Configure(c.conf, nodes[c.self], nodes, prefixes("10.244.9.0/26 10.244.0.0/26"))); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, got, c.want)
		}
	}
}

// TestConfigureWithoutItself checks that a node is not its own neighbour, and that an address is a neighbour once: with two
// AS numbers, each reconciliation would start the session again.
func TestConfigureWithoutItself(t *testing.T) {
	t.Parallel()
	self := &cluster.Node{Name: "new", Addresses: prefixes("192.0.2.1/24")}
	nodes := []*cluster.Node{self, {Name: "old", Addresses: prefixes("192.0.2.1/24")}, {Name: "b", Addresses: prefixes("192.0.2.2/24")}, {Name: "b2", Addresses: prefixes("192.0.2.2/24")}}
	router := netip.MustParseAddr("192.0.2.254")
	for _, c := range []struct {
		routers []cluster.Peer
		want    string
	}{
		{nil, "[{192.0.2.2 64512 0 false false}]"},
		{[]cluster.Peer{{Address: self.Addresses[0].Addr()}, {Address: router, ASN: 65000}, {Address: router, ASN: 65001}}, "[{192.0.2.254 65000 0 false true}]"},
	} {
		if got := fmt.Sprint(bgp.Configure(cluster.Backend{BGPPeer: c.routers}, self, nodes, nil).Neighbours); got != c.want {
			t.Errorf("with the routers %v: neighbours %s, want %s", c.routers, got, c.want)
		}
	}
}

// TestOneSideConnects checks that two nodes agree about their session: each lists the other, and one of them is passive.
func TestOneSideConnects(t *testing.T) {
	t.Parallel()
	nodes := []*cluster.Node{
		{Name: "four", Addresses: prefixes("192.0.2.10/24")}, {Name: "other four", Addresses: prefixes("192.0.2.9/24")},
		{Name: "six", Addresses: prefixes("2001:db8::2/64")}, {Name: "both", Addresses: prefixes("192.0.2.2/24 2001:db8::1/64")},
	}
	sessions := map[string]bool{"four, other four": true, "four, both": true, "other four, both": true, "six, both": true}
	side := func(self, other *cluster.Node) string {
		for _, n := range bgp.Configure(cluster.Backend{}, self, nodes, nil).Neighbours {
			switch {
			case !slices.Contains([]netip.Addr{other.Address(false), other.Address(true)}, n.Address):
			case n.Passive:
				return "passive"
			default:
				return "active"
			}
		}
		return ""
	}
	for i, a := range nodes {
		for _, b := range nodes[i+1:] {
			sides := []string{side(a, b), side(b, a)}
			slices.Sort(sides)
			want := []string{"", ""}
			if sessions[a.Name+", "+b.Name] {
				want = []string{"active", "passive"}
			}
			if !slices.Equal(sides, want) {
				t.Errorf("%s and %s: %q, want %q", a.Name, b.Name, sides, want)
			}
		}
	}
}

// TestKeptRoutesOfEarlierProcess checks that Kept returns only the routes that an earlier process learned from neighbours.
func TestKeptRoutesOfEarlierProcess(t *testing.T) {
	t.Parallel()
	via := netip.MustParseAddr("192.0.2.2")
	dst := prefixes("10.1.0.0/26 10.2.0.0/26 10.3.0.0/26 10.4.0.0/26 10.5.0.0/26")
	got := bgp.Kept([]kernel.RouteInfo{
		{Dst: dst[0], Via: via, Index: 2, Protocol: backend.Protocol},
		{Dst: dst[1], Hops: []kernel.Hop{{Via: via}, {Via: via.Next()}}, Index: 2, Protocol: backend.Protocol},
		{Dst: dst[2], Via: via, Index: 3, Protocol: backend.Protocol}, // through a tunnel
		{Dst: dst[3], Via: via, Index: 2, Protocol: 4},                // another program's route
		{Dst: dst[4], Index: 2, Protocol: backend.Protocol},
	}, 2)
	if want := "[{10.1.0.0/26 [192.0.2.2]} {10.2.0.0/26 [192.0.2.2 192.0.2.3]}]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
}
