package backend

import (
	"fmt"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/kernel"
)

// IPIPName is the name of the IPIP link.
const IPIPName = "fl-ipip"

// ipipOverhead returns the size of the outer IPv4 header, in bytes: RFC 2003.
func ipipOverhead(cluster.Backend, bool) int { return 20 }

// ipip returns one link, which carries IPv4 over IPv4, and routes whose gateways are the remote endpoints.
func ipip(in *Input) (out kernel.Objects, problems []Problem) {
	out = append(out, &kernel.IPIP{In: in.In, Name: IPIPName, Local: in.Self.Address(false), MTU: in.MTU, OwnerTag: in.mark("ipip")})
	for _, a := range in.own(IPIPName) {
		if a.(*kernel.Addr).Prefix.Addr().Is4() {
			out = append(out, a)
		}
	}
	for _, p := range in.Peers {
		for _, d := range p.Dst {
			if d.Addr().Is6() {
				problems = append(problems, Problem{p.Node.Name, fmt.Errorf("ipip carries IPv4 alone: no route to %s (vxlan and wireguard carry both)", d)})
				continue
			}
			out = append(out, &kernel.Route{In: in.In, Dst: d, Via: p.Node.Address(false), Link: IPIPName, OnLink: true, Proto: Protocol})
		}
	}
	return out, problems
}
