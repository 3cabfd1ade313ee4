package backend

import (
	"fmt"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/kernel"
)

// IPIPName is the name of the link that carries a family.
func IPIPName(six bool) string {
	if six {
		return "fl-ip6ip6"
	}
	return "fl-ipip"
}

// ipipOverhead is one more IP header: RFC 2003, RFC 2473.
func ipipOverhead(_ cluster.Backend, underlay6 bool) int {
	if underlay6 {
		return 40
	}
	return 20
}

// ipip is a link for each family, whose routes' gateways are the other ends: IPv4
// goes in IPv4, IPv6 in IPv6.
func ipip(in *Input) (out kernel.Objects, problems []Problem) {
	for _, six := range []bool{false, true} {
		routes, bad := in.ipipRoutes(six)
		problems = append(problems, bad...)
		if len(routes) == 0 {
			continue
		}
		link := &kernel.IPIP{In: in.In, Name: IPIPName(six), Local: in.Self.Address(six), MTU: in.Underlay.MTU - ipipOverhead(in.Conf, six), Mark: in.mark("ipip")}
		out = append(out, link)
		for _, a := range in.own(link.Name) {
			if a.(*kernel.Addr).Prefix.Addr().Is6() == six {
				out = append(out, a)
			}
		}
		out = append(out, routes...)
	}
	return out, problems
}

func (in *Input) ipipRoutes(six bool) (out kernel.Objects, problems []Problem) {
	for _, p := range in.Peers {
		for _, d := range p.Dst {
			if d.Addr().Is6() != six {
				continue
			}
			if !in.Self.Address(six).IsValid() || !p.Node.Address(six).IsValid() {
				problems = append(problems, Problem{p.Node.Name, fmt.Errorf("ipip: no route to %s: IPv4 goes in IPv4 and IPv6 in IPv6, and one of this node (%s) and %s (%s) has no address of that family",
					d, words(in.Self), p.Node.Name, words(p.Node))})
				break
			}
			out = append(out, &kernel.Route{In: in.In, Dst: d, Via: p.Node.Address(six), Link: IPIPName(six), OnLink: true, Proto: Protocol})
		}
	}
	return out, problems
}
