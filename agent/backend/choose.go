package backend

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/kernel"
)

// Result contains the objects that connect a network on this node, and the peers that cannot be connected.
type Result struct {
	Objects   kernel.Objects
	Problems  []Problem
	MTU       int               // of the container links, in bytes
	By        map[string]string // how each peer is connected, by name: the backend's type, or "direct" without its tunnel
	Tunnels   []string          // links that carry packets to peers
	TunnelMTU int               // the smallest MTU of Tunnels, in bytes; 0 without any
}

// Configured returns a network's backends; the default is vxlan. It ignores plain routes in an isolated network, which
// cluster.Network.Validate refuses: its namespace has no link to the nodes but the tunnel.
func Configured(n *cluster.Network) []cluster.Backend {
	if len(n.Backends) == 0 {
		return []cluster.Backend{{Type: cluster.VXLAN}}
	}
	if !n.Isolated {
		return n.Backends
	}
	list := slices.Clone(n.Backends)
	for i := range list {
		list[i].Direct = false
	}
	return list
}

// Compile connects this node with each peer by the first backend that fits the pair. It computes the input's Conf, MTU
// and Others, and the peers' Direct. Equal input gives equal output in the same order.
func Compile(in Input) Result {
	list := Configured(in.Network)
	r := Result{By: make(map[string]string, len(in.Peers)), MTU: MTU(in.Underlay.MTU, underlay6(in.Self), list...)}
	if in.Network.MTU != 0 {
		r.MTU = in.Network.MTU
	} else if in.Network.Has(true) {
		r.MTU = max(r.MTU, cluster.MinMTU6) // else no container could have its IPv6 address
	}
	joined := make([][]Peer, len(list))
	for _, p := range in.Peers {
		p.Direct = Direct(in.Self, p.Node)
		i, err := choose(list, in.Self, p.Node, p.Direct)
		if err != nil {
			r.Problems = append(r.Problems, Problem{p.Node.Name, err})
			continue
		}
		if j := besideHostGW(in.Network, list, i, in.Self, p.Node); j >= 0 {
			other := p
			p.Dst, other.Dst = ofFamily(p.Dst, underlay6(in.Self)), ofFamily(p.Dst, !underlay6(in.Self))
			joined[j] = append(joined[j], other)
		}
		joined[i] = append(joined[i], p)
		r.By[p.Node.Name] = list[i].Type
		if p.Direct && list[i].Direct {
			r.By[p.Node.Name] = "direct"
		}
	}
	r.Objects = make(kernel.Objects, 0, 4*len(in.Peers))
	for i, conf := range list {
		one := in
		one.Conf, one.Peers, one.MTU = conf, joined[i], MTU(in.Underlay.MTU, underlay6(in.Self), conf)
		for j, others := range joined {
			if j != i {
				one.Others = append(one.Others, others...)
			}
		}
		r.join(&one)
	}
	r.Tunnels, r.TunnelMTU = tunnels(r.Objects)
	return r
}

// join adds the objects of one backend. A backend without peers needs none, except bgp, which learns routes.
func (r *Result) join(in *Input) {
	b, ok := Of(in.Conf.Type)
	if !ok || len(in.Peers) == 0 && b.Type != cluster.BGP {
		return
	}
	objects, problems := b.Objects(in)
	objects, small := in.dropUnusableIPv6(objects)
	r.Objects = append(r.Objects, objects...)
	r.Problems = slices.Concat(r.Problems, problems, small)
}

// Choose returns the index of the first backend that fits a pair of nodes. Both nodes choose the same one.
func Choose(list []cluster.Backend, self, peer *cluster.Node) (int, error) {
	return choose(list, self, peer, Direct(self, peer))
}

func choose(list []cluster.Backend, self, peer *cluster.Node, direct bool) (int, error) {
	var errs []error
	for i, b := range list {
		err := checkPair(b, self, peer, direct)
		if err == nil {
			return i, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", b.Type, err))
	}
	return -1, errors.Join(errs...)
}

// besideHostGW returns the index of the backend that carries the other family than the underlay's between two nodes that
// host-gw connects, or -1. It does not depend on the nodes' blocks, so both nodes have the same tunnel.
func besideHostGW(n *cluster.Network, list []cluster.Backend, chosen int, self, peer *cluster.Node) int {
	six := !underlay6(self)
	used := slices.ContainsFunc(n.Subnets, func(s cluster.Subnet) bool { return s.CIDR.Addr().Is6() == six })
	if list[chosen].Type != cluster.HostGW || !used || directIn(self, peer, six) {
		return -1
	}
	for i, b := range list[chosen+1:] {
		if b.Type != cluster.HostGW && b.Type != cluster.IPIP && checkPair(b, self, peer, true) == nil {
			return chosen + 1 + i
		}
	}
	return -1
}

// checkPair returns why a backend cannot connect two nodes, or nil.
func checkPair(b cluster.Backend, self, peer *cluster.Node, direct bool) error {
	if a := commonAddress(self, peer); a.IsValid() {
		return fmt.Errorf("%s has this node's own address %s: if it is an earlier name of this node, remove it (fairlead node remove)", peer.Name, a)
	}
	if peer.Flannel != nil && peer.Flannel.Problem != "" {
		return fmt.Errorf("%s is a flannel node: %s", peer.Name, peer.Flannel.Problem)
	}
	if peer.Flannel != nil && peer.Flannel.Type != b.Type {
		return fmt.Errorf("%s is a flannel node with backend %s", peer.Name, peer.Flannel.Type)
	}
	switch {
	case len(peer.Addresses) == 0 && b.Type != cluster.BGP:
		return fmt.Errorf("%s has no address: its agent has published none, and in Kubernetes its Node has no InternalIP", peer.Name)
	case b.When == "direct" && !direct:
		return errors.New("connects only nodes on the same link, but " + notShared(self, peer))
	case b.Type == cluster.HostGW && !direct:
		return errors.New(notShared(self, peer) + ": a next hop must be on the link; add vxlan after host-gw to the list of backends")
	case b.Type == cluster.WireGuard && self.WireGuard == "":
		return thisNode("this node has no WireGuard key yet")
	case b.Type == cluster.WireGuard && publicKey(peer) == "":
		return fmt.Errorf("%s has not published a WireGuard key yet", peer.Name)
	case b.Type == cluster.WireGuard && badKey(peer) != nil:
		return badKey(peer)
	case b.Type == cluster.IPIP && (underlay6(self) || underlay6(peer)):
		return errors.New("both nodes need an IPv4 address")
	case b.Type == cluster.BGP:
		return nil
	case len(self.Addresses) == 0:
		return thisNode("this node has no address")
	}
	if six := underlay6(self); !self.Address(six).IsValid() || !peer.Address(six).IsValid() || underlay6(peer) != six {
		return fmt.Errorf("%s (%s) and this node (%s) use different address families: give both an IPv4 address, or use the backend bgp", peer.Name, words(peer), words(self))
	}
	return nil
}

// commonAddress returns an address that both nodes have, or the zero address.
func commonAddress(a, b *cluster.Node) netip.Addr {
	for _, six := range []bool{false, true} {
		if x := a.Address(six); x.IsValid() && x == b.Address(six) {
			return x
		}
	}
	return netip.Addr{}
}

func notShared(self, peer *cluster.Node) string {
	return fmt.Sprintf("%s (%s) is not on this node's link (%s)", peer.Name, words(peer), words(self))
}

func words(n *cluster.Node) string {
	var out []string
	for _, a := range n.Addresses {
		out = append(out, a.String())
	}
	if len(out) == 0 {
		return "no address"
	}
	return strings.Join(out, ", ")
}

// Direct reports whether two nodes share a link: each one's underlay address lies in the other's prefix.
func Direct(a, b *cluster.Node) bool { return directIn(a, b, underlay6(a)) }

func directIn(a, b *cluster.Node, six bool) bool {
	p, q := a.Prefix(six), b.Prefix(six)
	if b.Flannel != nil && p.IsValid() && q.IsValid() { // flannel publishes no prefix length
		return p.Masked().Contains(q.Addr())
	}
	return p.IsValid() && q.IsValid() && p.Masked().Contains(q.Addr()) && q.Masked().Contains(p.Addr())
}

// MTU returns the containers' MTU for an underlay's MTU, in bytes. It subtracts the largest overhead of the backends,
// because a packet may use any of them.
func MTU(underlay int, underlay6 bool, list ...cluster.Backend) int {
	most := 0
	for _, c := range list {
		if b, ok := Of(c.Type); ok {
			most = max(most, b.Overhead(c, underlay6))
		}
	}
	return underlay - most
}

// Table is the name of the agent's nftables table, in family inet.
const Table = "fairlead-agent"

// Clamp returns the rules that clamp the TCP MSS to the path MTU for connections through the links. They work whatever
// MTU the endpoints' own links have.
func Clamp(links []string) kernel.Objects {
	if len(links) == 0 {
		return nil
	}
	const chain, mangle = "clamp", "type filter hook forward priority -150; policy accept"
	nft := func(what, name, text string) kernel.Object {
		return &kernel.NFT{Family: "inet", Table: Table, Kind: what, Name: name, Text: text}
	}
	out := kernel.Objects{nft("table", "", ""), nft("chain", chain, mangle)}
	for _, l := range slices.Sorted(slices.Values(links)) {
		out = append(out, nft("rule", chain, `oifname "`+l+`" tcp flags syn / syn,rst tcp option maxseg size set rt mtu`))
	}
	return out
}

// tunnels returns the tunnels' links and their smallest MTU in bytes.
func tunnels(list kernel.Objects) (links []string, least int) {
	for _, o := range list {
		name, mtu := kernel.Tunnel(o)
		if name == "" {
			continue
		}
		if links = append(links, name); least == 0 || mtu < least {
			least = mtu
		}
	}
	return links, least
}

// plain returns the routes to a peer without a tunnel. It returns in rest the destinations of a family in which the
// peer has no address on the link.
func (in *Input) plain(p Peer) (out kernel.Objects, rest []netip.Prefix) {
	for _, d := range p.Dst {
		if six := d.Addr().Is6(); directIn(in.Self, p.Node, six) {
			out = append(out, &kernel.Route{In: in.In, Dst: d, Via: p.Node.Address(six), Link: in.Underlay.Link, Proto: Protocol})
		} else {
			rest = append(rest, d)
		}
	}
	return out, rest
}
