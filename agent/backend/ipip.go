package backend

import (
	"net/netip"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/kernel"
)

// IPIPName is the name of the link that carries packets of a family.
func IPIPName(six bool) string {
	if six {
		return "fl-ip6ip"
	}
	return "fl-ipip"
}

// ipipOverhead is one more IPv4 header: RFC 2003, RFC 4213.
func ipipOverhead(cluster.Backend, bool) int { return 20 }

// ipip is a link for each family of containers' addresses, over IPv4, whose routes'
// gateways are the other ends.
func ipip(in *Input) (out kernel.Objects, _ []Problem) {
	for _, six := range []bool{false, true} {
		routes := in.ipipRoutes(six)
		if len(routes) == 0 {
			continue
		}
		link := &kernel.IPIP{In: in.In, Name: IPIPName(six), Six: six, Local: in.Self.Address(false), MTU: in.MTU, Mark: in.mark("ipip")}
		out = append(out, link)
		for _, a := range in.own(link.Name) {
			if a.(*kernel.Addr).Prefix.Addr().Is6() == six {
				out = append(out, a)
			}
		}
		out = append(out, routes...)
	}
	return out, nil
}

func (in *Input) ipipRoutes(six bool) (out kernel.Objects) {
	for _, p := range in.Peers {
		gateway := p.Node.Address(false)
		if six {
			gateway = compatible(gateway)
		}
		for _, d := range p.Dst {
			if d.Addr().Is6() == six {
				out = append(out, &kernel.Route{In: in.In, Dst: d, Via: gateway, Link: IPIPName(six), OnLink: true, Proto: Protocol})
			}
		}
	}
	return out
}

// compatible is an IPv4 address as an IPv4-compatible one, by which the kernel finds
// the other end of a tunnel of IPv6 in IPv4: RFC 4291,
// section 2.5.5.1.
func compatible(a netip.Addr) netip.Addr {
	var b [16]byte
	copy(b[12:], a.AsSlice())
	return netip.AddrFrom16(b)
}
