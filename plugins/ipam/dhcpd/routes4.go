package dhcpd

import (
	"encoding/binary"
	"net"
	"net/netip"
	"strings"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
)

// routes4 returns the routes of an acknowledgement. If it has classless routes, the router and static route options are
// ignored (RFC 3442).
func routes4(m *dhcpv4.DHCPv4, priority int) (out []cni.Route) {
	add := func(dst netip.Prefix, gw netip.Addr) {
		r := cni.Route{Dst: dst, GW: gw, Priority: priority}
		if !gw.IsValid() || gw.IsUnspecified() {
			scope := kernel.ScopeLink // for a route without a gateway
			r.GW, r.Scope = netip.Addr{}, &scope
		}
		out = append(out, r)
	}
	if classless, ok := parseClassless(m.Options.Get(dhcpv4.OptionClasslessStaticRoute)); ok {
		for _, r := range classless {
			add(r.dst, r.gw)
		}
		return out
	}
	for _, r := range parseStatic(m.Options.Get(dhcpv4.OptionStaticRoutingTable)) {
		add(r.dst, r.gw)
	}
	if r := m.Router(); len(r) > 0 {
		add(netip.PrefixFrom(netip.IPv4Unspecified(), 0), fromIP(r[0]))
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
