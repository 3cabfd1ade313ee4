package bgp

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/osrg/gobgp/v4/pkg/apiutil"
	bgppacket "github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// TestUsableNextHops checks that a next hop which a route cannot have does not spoil those that it can have.
func TestUsableNextHops(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		dst  string
		hops []string
		want string
	}{
		{"10.244.1.0/26", []string{"192.0.2.1", "192.0.2.2"}, "[192.0.2.1 192.0.2.2]"},
		{"10.244.1.0/26", []string{"2001:db8::1", "192.0.2.2"}, "[192.0.2.2]"},
		{"10.244.1.0/26", []string{"2001:db8::1"}, "[]"},
		{"10.244.1.0/26", []string{"192.0.2.1", "0.0.0.0", "127.0.0.1", "224.0.0.1"}, "[192.0.2.1]"},
		{"fd00:244::/64", []string{"2001:db8::1", "fe80::1", "::", "::1", "::ffff:192.0.2.1"}, "[2001:db8::1 fe80::1]"},
	} {
		dst := netip.MustParsePrefix(c.dst)
		six := dst.Addr().Is6()
		var paths []*apiutil.Path
		for i, hop := range c.hops {
			nlri, err := bgppacket.NewIPAddrPrefix(dst)
			if err != nil {
				t.Fatal(err)
			}
			reach, err := bgppacket.NewPathAttributeMpReachNLRI(family(six), []bgppacket.PathNLRI{{NLRI: nlri}}, netip.MustParseAddr(hop))
			if err != nil {
				t.Fatal(err)
			}
			paths = append(paths, &apiutil.Path{PeerAddress: netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)}), Best: i == 0, Attrs: []bgppacket.PathAttributeInterface{reach}})
		}
		if got := fmt.Sprint(best(paths, six)); got != c.want {
			t.Errorf("%s by %v: %s, want %s", dst, c.hops, got, c.want)
		}
	}
}
