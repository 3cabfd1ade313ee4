package dhcpd

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
)

// routes4 returns the routes of an acknowledgement with an address. The routes without a gateway are first: the kernel
// accepts a gateway only if it has a route to it. A gateway that is not on the address's subnet gets such a route.
func routes4(m *dhcpv4.DHCPv4, address netip.Prefix, priority int) []cni.Route {
	var direct, out []cni.Route
	onLink := func(dst netip.Prefix) {
		scope := kernel.ScopeLink
		direct = append(direct, cni.Route{Dst: dst, Scope: &scope, Priority: priority})
	}
	all := options4(m)
	for _, r := range all {
		if r.gw.IsUnspecified() {
			onLink(r.dst)
		}
	}
	for _, r := range all {
		if r.gw.IsUnspecified() {
			continue
		}
		if !address.Contains(r.gw) && !slices.ContainsFunc(direct, func(d cni.Route) bool { return d.Dst.Contains(r.gw) }) {
			onLink(netip.PrefixFrom(r.gw, 32))
		}
		out = append(out, cni.Route{Dst: r.dst, GW: r.gw, Priority: priority})
	}
	return append(direct, out...)
}

// options4 returns the routes in the options of an acknowledgement. If it has classless routes, the router and static route
// options are ignored (RFC 3442).
func options4(m *dhcpv4.DHCPv4) []route4 {
	if classless, ok := parseClassless(m.Options.Get(dhcpv4.OptionClasslessStaticRoute)); ok {
		return classless
	}
	out := parseStatic(m.Options.Get(dhcpv4.OptionStaticRoutingTable))
	if r := m.Router(); len(r) > 0 {
		out = append(out, route4{netip.PrefixFrom(netip.IPv4Unspecified(), 0), fromIP(r[0])})
	}
	return out
}

type route4 struct {
	dst netip.Prefix
	gw  netip.Addr
}

// parseClassless parses option 121. Each route has a prefix length, the significant bytes of the prefix, and the
// router. A malformed option is ignored as a whole.
func parseClassless(b []byte) (out []route4, ok bool) {
	for len(b) > 0 {
		bits := int(b[0])
		n := (bits + 7) / 8
		if bits > 32 || len(b) < 1+n+4 {
			return nil, false
		}
		var dst [4]byte
		copy(dst[:], b[1:1+n])
		out = append(out, route4{
			netip.PrefixFrom(netip.AddrFrom4(dst), bits).Masked(), netip.AddrFrom4([4]byte(b[1+n:])),
		})
		b = b[1+n+4:]
	}
	return out, len(out) > 0
}

// parseStatic parses option 33, which contains pairs of destination and router. The destination is a classful network,
// or else a host (RFC 2132, 5.8).
func parseStatic(b []byte) (out []route4) {
	for ; len(b) >= 8; b = b[8:] {
		dst := netip.AddrFrom4([4]byte(b))
		if dst.IsUnspecified() {
			continue // the RFC forbids a default route here
		}
		bits, _ := net.IP(b[:4]).DefaultMask().Size()
		if host := binary.BigEndian.Uint32(b) << bits; bits == 0 || host != 0 {
			bits = 32
		}
		out = append(out, route4{netip.PrefixFrom(dst, bits), netip.AddrFrom4([4]byte(b[4:]))})
	}
	return out
}

func dns4(m *dhcpv4.DHCPv4) (d cni.DNS) {
	for _, ip := range m.DNS() {
		d.Nameservers = append(d.Nameservers, ip.String())
	}
	d.Domain = strings.TrimRight(m.DomainName(), "\x00")
	if s := m.DomainSearch(); s != nil {
		d.Search = s.Labels
	}
	return d
}

func fromIP(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}
