package backend

import (
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/kernel"
)

// bgp returns the routes that neighbours announced inside the network's subnets. It skips prefixes inside of what other
// backends connect and inside this node's own blocks, except single addresses that a peer uses according to the store. A
// neighbour can redirect neither traffic outside the network, nor traffic of this node's containers, nor traffic that
// takes another backend: a wider prefix than a block, such as a router's summary, loses against the block's own route.
func bgp(in *Input) (out kernel.Objects, _ []Problem) {
	var connected, own prefixes
	own.add(in.Blocks...)
	for _, p := range in.Others {
		connected.add(p.Dst...)
	}
	moved := map[netip.Prefix]bool{}
	for _, p := range in.Peers {
		for _, dst := range p.Dst {
			moved[dst] = dst.IsSingleIP()
		}
	}
	for _, l := range in.Learned {
		ours := connected.covers(l.Dst) || own.covers(l.Dst)
		l.Via = in.nextHops(l.Via)
		if in.Network.Covers(l.Dst) && len(l.Via) > 0 && !connected.has[l.Dst] && (!ours || moved[l.Dst]) {
			out = append(out, in.learned(l))
		}
	}
	return out, nil
}

// nextHops returns the addresses without this node's own, by which a route leads nowhere. If some share a prefix with this
// node, it leaves out the others: the kernel rejects a route of which one next hop is on no link.
func (in *Input) nextHops(list []netip.Addr) (out []netip.Addr) {
	var near []netip.Addr
	for _, a := range list {
		if slices.ContainsFunc(in.Self.Addresses, func(p netip.Prefix) bool { return p.Addr() == a }) {
			continue
		}
		out = append(out, a)
		if slices.ContainsFunc(in.Self.Addresses, func(p netip.Prefix) bool { return p.Contains(a) }) {
			near = append(near, a)
		}
	}
	if len(near) > 0 {
		return near
	}
	return out
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

// prefixes is a set of prefixes.
type prefixes struct {
	has    map[netip.Prefix]bool
	widest int // the smallest prefix length
}

func (s *prefixes) add(list ...netip.Prefix) {
	for _, p := range list {
		if s.has == nil {
			s.has, s.widest = map[netip.Prefix]bool{}, p.Bits()
		}
		s.has[p], s.widest = true, min(s.widest, p.Bits())
	}
}

// covers reports whether a prefix is inside one of the set.
func (s *prefixes) covers(p netip.Prefix) bool {
	for bits := p.Bits(); bits >= s.widest; bits-- {
		if s.has[netip.PrefixFrom(p.Addr(), bits).Masked()] {
			return true
		}
	}
	return false
}
