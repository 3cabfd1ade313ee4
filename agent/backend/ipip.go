package backend

import (
	"fmt"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/kernel"
)

// IPIPName is the name of the IPIP link.
const IPIPName = "fl-ipip"

// ipipOverhead returns the size of an IPv4 header (RFC 2003).
func ipipOverhead(cluster.Backend, bool) int { return 20 }

// ipip returns an IPv4-only link and the routes over it, whose gateways are the other nodes.
func ipip(in *Input) (out kernel.Objects, problems []Problem) {
	out = append(out, &kernel.IPIP{In: in.In, Name: IPIPName, Local: in.Self.Address(false), MTU: in.MTU, OwnerTag: in.linkAlias("ipip")})
	for _, a := range in.own(IPIPName) {
		if a.(*kernel.Addr).Prefix.Addr().Is4() {
			out = append(out, a)
		}
	}
	for _, p := range in.Peers {
		for _, d := range p.Dst {
			if d.Addr().Is6() {
				problems = append(problems, Problem{p.Node.Name, fmt.Errorf("ipip carries only IPv4, so there is no route to %s: use vxlan or wireguard", d)})
				continue
			}
			out = append(out, &kernel.Route{In: in.In, Dst: d, Via: p.Node.Address(false), Link: IPIPName, OnLink: true, Proto: Protocol})
		}
	}
	return out, problems
}
