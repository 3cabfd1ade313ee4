package backend

import (
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/kernel"
)

// bgp returns routes for what neighbours announced inside the network's subnets, except what other backends connect and
// what is in this node's own blocks. Of those it accepts a single address if the store says that a peer uses it. So a
// neighbour redirects neither traffic outside the network nor that of this node's containers.
func bgp(in *Input) (out kernel.Objects, _ []Problem) {
	connected, moved := map[netip.Prefix]bool{}, map[netip.Prefix]bool{}
	for _, p := range in.Others {
		for _, dst := range p.Dst {
			connected[dst] = true
		}
	}
	for _, p := range in.Peers {
		for _, dst := range p.Dst {
			moved[dst] = dst.IsSingleIP()
		}
	}
	for _, l := range in.Learned {
		own := slices.ContainsFunc(in.Blocks, l.Dst.Overlaps)
		if in.Network.Covers(l.Dst) && len(l.Via) > 0 && !connected[l.Dst] && (!own || moved[l.Dst]) {
			out = append(out, in.learned(l))
		}
	}
	return out, nil
}

func (in *Input) learned(l Learned) kernel.Object {
	r := &kernel.Route{In: in.In, Dst: l.Dst, Link: in.Underlay.Link, Proto: Protocol}
	if len(l.Via) == 1 {
		r.Via = l.Via[0]
		return r
	}
	for _, v := range l.Via {
		r.Hops = append(r.Hops, kernel.Hop{Via: v, Weight: 1})
	}
	return r
}
