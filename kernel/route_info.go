package kernel

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// RouteInfo is a route as the kernel reports it.
type RouteInfo struct {
	Dst           netip.Prefix
	Via, Src      netip.Addr
	Index         int // of the link
	Table, Metric int
	Protocol      byte
	Type, Scope   byte
	MTU, AdvMSS   int
	OnLink        bool
	Hops          []Hop // several gateways, all on the link with Index
}

// IsUnicast reports whether the route leads through a link.
func (r *RouteInfo) IsUnicast() bool { return r.Type == unix.RTN_UNICAST }

// HasGateway reports whether the route leads through one or several gateways.
func (r *RouteInfo) HasGateway() bool { return r.Via.IsValid() || len(r.Hops) > 0 }

// On returns the route as an object on a link.
func (r *RouteInfo) On(s Side, link string) *Route {
	scope := int(r.Scope)
	return &Route{
		In: s, Link: link, Dst: r.Dst, Via: r.Via, Src: r.Src, Scope: &scope,
		Metric: r.Metric, Table: r.Table, MTU: r.MTU, AdvMSS: r.AdvMSS, Proto: r.Protocol, OnLink: r.OnLink, Hops: r.Hops,
	}
}

// Routes lists the unicast routes of a family (AF_INET, AF_INET6) in a table, or in all tables if table is 0.
func (e *Engine) Routes(s Side, fam byte, table int) ([]RouteInfo, error) {
	return e.RoutesByProtocol(s, fam, table, 0)
}

// routesRequest lists the routes of a family in a table, with a protocol and a type; 0 means all. The kernel filters them
// (4.20), but lists the routes of every family if it lacks the one that is asked for.
func routesRequest(fam byte, table int, protocol, typ byte) netlink.Request {
	b := RouteMessage(fam, 0, 0, 0, 0)
	b[4], b[5], b[7] = 0, protocol, typ
	if table != 0 {
		b.Uint32(unix.RTA_TABLE, uint32(table))
	}
	return netlink.Request{Type: unix.RTM_GETROUTE, Body: b}
}

// RoutesByProtocol lists the routes of a table and a protocol; 0 means all.
func (e *Engine) RoutesByProtocol(s Side, fam byte, table int, protocol byte) (out []RouteInfo, _ error) {
	msgs, err := e.Dump(s, routesRequest(fam, table, protocol, 0))
	if netlink.IsAbsent(err) && e.ns[s] != nil { // a table that does not exist has no routes
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	for _, m := range msgs {
		if len(m) >= unix.SizeofRtMsg && m[0] == fam && (protocol == 0 || m[5] == protocol) {
			out = append(out, ParseRoute(m).perLink(m)...)
		}
	}
	return out, nil
}

// Uplinks returns the host's links with a default route from a router advertisement. Without IPv6, there are none.
func (e *Engine) Uplinks() (names []string, err error) {
	routes, err := e.RoutesByProtocol(Host, IPv6, 0, ProtocolRA)
	if lacksFamily(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("default routes from router advertisements: %w", err)
	}
	for _, r := range routes {
		if r.Dst.Bits() != 0 {
			continue
		}
		l, err := e.LinkByIndex(Host, r.Index)
		switch {
		case err == nil:
			names = append(names, l.Name)
		case !netlink.IsAbsent(err): // a link that is gone by now is none
			return nil, err
		}
	}
	return names, nil
}

// ParseRoute decodes a message about a route. m holds at least struct rtmsg.
func ParseRoute(m []byte) RouteInfo {
	p := m[unix.SizeofRtMsg:]
	r := RouteInfo{
		Via: netlink.Addr(netlink.Attr(p, unix.RTA_GATEWAY)), Src: netlink.Addr(netlink.Attr(p, unix.RTA_PREFSRC)), Index: int(netlink.Uint32(netlink.Attr(p, unix.RTA_OIF))),
		Table: int(netlink.Uint32(netlink.Attr(p, unix.RTA_TABLE))), Metric: int(netlink.Uint32(netlink.Attr(p, unix.RTA_PRIORITY))),
		Protocol: m[5], Scope: m[6], Type: m[7],
	}
	if hops := netlink.Attr(p, unix.RTA_MULTIPATH); len(hops) >= unix.SizeofRtNexthop {
		r.Index = int(netlink.Uint32(hops[4:])) // the first of several links
	}
	dst := netlink.Addr(netlink.Attr(p, unix.RTA_DST))
	if !dst.IsValid() {
		dst = netip.IPv4Unspecified()
		if m[0] == unix.AF_INET6 {
			dst = netip.IPv6Unspecified()
		}
	}
	r.Dst = netip.PrefixFrom(dst, int(m[1]))
	r.OnLink = netlink.Uint32(m[8:])&unix.RTNH_F_ONLINK != 0
	if multi := netlink.Attr(p, unix.RTA_MULTIPATH); multi != nil {
		if hops, index, all := parseHops(multi); all {
			r.Hops, r.Index = hops, index
			r.OnLink = true
			eachHop(multi, func(hop []byte) { r.OnLink = r.OnLink && hop[2]&unix.RTNH_F_ONLINK != 0 })
		}
	}
	metrics := netlink.Attr(p, unix.RTA_METRICS)
	r.MTU, r.AdvMSS = int(netlink.Uint32(netlink.Attr(metrics, unix.RTAX_MTU))), int(netlink.Uint32(netlink.Attr(metrics, unix.RTAX_ADVMSS)))
	return r
}

// perLink splits a multipath route over several links into one route per link: IPv6 merges the routes of several
// interfaces to one destination.
func (r RouteInfo) perLink(m []byte) (out []RouteInfo) {
	multi := netlink.Attr(m[unix.SizeofRtMsg:], unix.RTA_MULTIPATH)
	if multi == nil || r.Hops != nil {
		return []RouteInfo{r}
	}
	eachHop(multi, func(hop []byte) {
		one := r
		one.Index, one.Via = int(netlink.Uint32(hop[4:])), netlink.Addr(netlink.Attr(hop[unix.SizeofRtNexthop:], unix.RTA_GATEWAY))
		out = append(out, one)
	})
	return out
}

// RouteTo returns the kernel's message about the route to an address. more adds further attributes of the packet.
func (e *Engine) RouteTo(s Side, to netip.Addr, more func(*netlink.Buffer)) ([]byte, error) {
	b := RouteMessage(netlink.AddrFamily(to), to.BitLen(), 0, 0, 0)
	b[4], b[5], b[7] = 0, 0, 0
	b.Addr(unix.RTA_DST, to)
	more(&b)
	resp, err := e.Request(s, netlink.Request{Type: unix.RTM_GETROUTE, Body: b})
	if err == nil && (len(resp.Messages) == 0 || len(resp.Messages[0]) < unix.SizeofRtMsg) {
		err = unix.ENETUNREACH
	}
	if err != nil {
		return nil, err
	}
	return resp.Messages[0], nil
}

// MatchRequest asks for the route in the kernel's tables that the host's packets to an address take.
func MatchRequest(to netip.Addr) netlink.Request {
	b := RouteMessage(netlink.AddrFamily(to), to.BitLen(), 0, 0, 0)
	b[4], b[5], b[7] = 0, 0, 0
	flags := uint32(unix.RTM_F_FIB_MATCH)
	if to.Is4() {
		flags |= unix.RTM_F_LOOKUP_TABLE // IPv6 rejects the flag, and always reports the table
	}
	binary.NativeEndian.PutUint32(b[8:], flags)
	b.Addr(unix.RTA_DST, to)
	return netlink.Request{Type: unix.RTM_GETROUTE, Body: b}
}

// LinkTo returns the name of the host's link by which packets to an address leave.
func (e *Engine) LinkTo(a netip.Addr) (string, error) {
	m, err := e.RouteTo(Host, a, func(*netlink.Buffer) {})
	if err != nil {
		return "", fmt.Errorf("route to %s: %w", a, err)
	}
	index := ParseRoute(m).Index
	for name, i := range e.index[Host] {
		if i == index {
			return name, nil
		}
	}
	l, err := e.LinkByIndex(Host, index)
	if err != nil {
		return "", err
	}
	return l.Name, nil
}
