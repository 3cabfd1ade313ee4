package policytest

import (
	"math/rand/v2"
	"net/netip"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/fairlead/fairlead/agent/policy"
)

// outside returns addresses that no endpoint or node has.
func outside() []netip.Addr {
	return []netip.Addr{netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("2001:db8::1")}
}

// Packet returns a random packet between the endpoints, nodes and blocks of a world. Both addresses are of one family.
func Packet(r *rand.Rand, w *policy.World) policy.Packet {
	g := generator{r, w}
	p := policy.Packet{Src: g.side()}
	src := endpoint(w, p.Src)
	for p.Dst = g.side(); p.Dst.Is4() != p.Src.Is4() || src != nil && endpoint(w, p.Dst) == src && g.percent(90); p.Dst = g.side() {
	}
	if src != nil && g.percent(4) {
		g.nearby(&p, src)
	}
	p.Protocol, p.Port = g.protocol(), g.port()
	dst := endpoint(w, p.Dst)
	switch n := g.IntN(100); {
	case n < 12:
		p.Protocol, p.Port = "ICMP", 0
	case n < 50 && dst != nil && len(dst.Ports) > 0:
		port := pick(g, dst.Ports...)
		p.Protocol, p.Port = port.Protocol, port.Number
	}
	return p
}

// side returns an address of an endpoint, of a node, from outside, or at the edge of a block.
func (g generator) side() netip.Addr {
	n := g.IntN(100)
	if blocks := g.blocks(); n < 7 && len(blocks) > 0 {
		return g.edge(pick(g, blocks...))
	}
	if n < 15 && len(g.w.Nodes) > 0 {
		return pick(g, pick(g, g.w.Nodes...).Addresses...)
	}
	if n < 95 && len(g.w.Endpoints) > 0 {
		return pick(g, pick(g, g.w.Endpoints...).Addresses...)
	}
	return pick(g, outside()...)
}

// nearby replaces the destination by an address of the source or of its node, if one is of the same family.
func (g generator) nearby(p *policy.Packet, src *policy.Endpoint) {
	near := src.Addresses
	for _, n := range g.w.Nodes {
		if n.Name == src.Node && g.percent(70) {
			near = n.Addresses
		}
	}
	if a := pick(g, near...); a.Is4() == p.Src.Is4() {
		p.Dst = a
	}
}

// edge returns the first or last address of a prefix, or the one before or after.
func (g generator) edge(p netip.Prefix) netip.Addr {
	first := p.Masked().Addr()
	raw := first.AsSlice()
	for bit := p.Bits(); bit < first.BitLen(); bit++ {
		raw[bit/8] |= 1 << (7 - bit%8)
	}
	last, _ := netip.AddrFromSlice(raw)
	if a := pick(g, first, first.Prev(), last, last.Next()); a.IsValid() {
		return a
	}
	return first
}

// blocks returns all blocks of the policies, with their exceptions.
func (g generator) blocks() []netip.Prefix {
	out := slices.Clone(g.w.PodNetworks)
	add := func(cidr string) {
		if p, err := netip.ParsePrefix(cidr); err == nil {
			out = append(out, p)
		}
	}
	for _, n := range g.w.Policies {
		var peers []networkingv1.NetworkPolicyPeer
		for _, r := range n.Spec.Ingress {
			peers = append(peers, r.From...)
		}
		for _, r := range n.Spec.Egress {
			peers = append(peers, r.To...)
		}
		for _, p := range peers {
			if p.IPBlock != nil {
				add(p.IPBlock.CIDR)
				for _, e := range p.IPBlock.Except {
					add(e)
				}
			}
		}
	}
	for _, c := range g.w.ClusterPolicies {
		for _, r := range c.Spec.Egress {
			for _, p := range r.To {
				for _, n := range p.Networks {
					add(string(n))
				}
			}
		}
	}
	return out
}
