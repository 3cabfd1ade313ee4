package dhcpd

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
)

// routes4 returns the routes of an acknowledgement with an address. The routes without a gateway are first: the kernel
// accepts a gateway only if it has a route to it. A gateway that is not on the address's subnet gets such a route. Ignored
// describes routes that the container cannot use. Of several routes to one destination, the first counts.
func routes4(m *dhcpv4.DHCPv4, address netip.Prefix, priority int) (out []cni.Route, ignored []string) {
	all, ignored := options4(m, address)
	var direct []cni.Route
	onLink := func(dst netip.Prefix) {
		scope := kernel.ScopeLink
		direct = append(direct, cni.Route{Dst: dst, Scope: &scope, Priority: priority})
	}
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
	return append(direct, out...), ignored
}

// options4 returns the usable routes in the options of an acknowledgement. If it has classless routes, the router and static
// route options are ignored (RFC 3442). Only a classless route can do without a gateway.
func options4(m *dhcpv4.DHCPv4, address netip.Prefix) (out []route4, ignored []string) {
	all, classless := parseClassless(m.Options.Get(dhcpv4.OptionClasslessStaticRoute))
	if !classless {
		all = parseStatic(m.Options.Get(dhcpv4.OptionStaticRoutingTable))
		for _, ip := range m.Router() {
			all = append(all, route4{netip.PrefixFrom(netip.IPv4Unspecified(), 0), fromIP(ip)})
		}
	}
	for _, r := range all {
		why := refuseGateway(r.gw, address)
		switch onLink := classless && r.gw.IsUnspecified(); {
		case r.dst == address.Masked():
			ignored = append(ignored, fmt.Sprintf("route to %s: the address has it already", r.dst))
		case why != "" && !onLink:
			ignored = append(ignored, fmt.Sprintf("route to %s via %s: %s", r.dst, r.gw, why))
		case !slices.ContainsFunc(out, func(o route4) bool { return o.dst == r.dst }):
			out = append(out, r)
		}
	}
	return out, ignored
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
		if a := fromIP(ip); isUnicast(a) || a.IsLoopback() {
			d.Nameservers = append(d.Nameservers, a.String())
		}
	}
	if domain := strings.TrimRight(m.DomainName(), "\x00"); isDomain(domain) {
		d.Domain = domain
	}
	if s := m.DomainSearch(); s != nil {
		d.Search = domains(s.Labels)
	}
	return d
}

func fromIP(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}
