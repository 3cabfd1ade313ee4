package backend

import (
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/kernel"
)

// bgp returns routes for what neighbours announced. It accepts only prefixes in the network's subnets that neither this
// node nor another backend covers. So no neighbour can redirect other traffic.
func bgp(in *Input) (out kernel.Objects, _ []Problem) {
	var not []netip.Prefix
	not = append(not, in.Blocks...)
	for _, p := range in.Others {
		not = append(not, p.Dst...)
	}
	others := make(map[netip.Prefix]bool, len(not))
	for _, p := range not {
		others[p] = true
	}
	for _, l := range in.Learned {
		if !in.Network.Covers(l.Dst) || others[l.Dst] || len(l.Via) == 0 || slices.ContainsFunc(in.Blocks, l.Dst.Overlaps) && !in.narrower(l.Dst) {
			continue
		}
		out = append(out, in.learned(l))
	}
	return out, nil
}

// narrower reports whether a prefix is a single address, which another node may have from a block of this node.
func (in *Input) narrower(p netip.Prefix) bool { return p.IsSingleIP() }

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
