package agent

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/agent/backend"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/kernel"
)

// Wanted is what a node should hold.
type Wanted struct {
	Objects  kernel.Objects
	Problems []backend.Problem
	MTU      map[string]int               // bytes, of the containers' links, by network
	By       map[string]map[string]string // how each node is joined, by network and node
}

// Compile works out what a node has to hold. It is pure: the same snapshot and
// host give the same objects in the same order.
func Compile(s *cluster.Snapshot, self *cluster.Node, h Host) Wanted {
	w := Wanted{MTU: map[string]int{}, By: map[string]map[string]string{}}
	n := s.Networks[cluster.DefaultNetwork]
	if n == nil {
		return w
	}
	w.forwarding(n)
	w.masquerade(shared(s))
	blocks := s.BlocksOf(n.Name, self.Name)
	w.unused(blocks)
	out := backend.Compile(backend.Input{
		Network: n, Self: self, Blocks: blocks, Underlay: h.Underlay, Peers: peersOf(s, n, self),
		KeyFile: h.KeyFile, Program: h.Program, Socket: h.Socket, Flannel: h.Flannel, Learned: h.Learned,
	})
	w.Objects = append(w.Objects, backend.Clamp(out.Tunnels)...)
	w.Objects = append(w.Objects, out.Objects...)
	w.Problems = append(w.Problems, out.Problems...)
	w.MTU[n.Name], w.By[n.Name] = out.MTU, out.By
	return w
}

// shared are the networks that live in the host's namespace.
func shared(s *cluster.Snapshot) (out []*cluster.Network) {
	for _, name := range sortedKeys(s.Networks) {
		if n := s.Networks[name]; !n.Isolated {
			out = append(out, n)
		}
	}
	return out
}

// forwarding lets packets of containers pass.
func (w *Wanted) forwarding(n *cluster.Network) {
	four, six := false, false
	for _, s := range n.Subnets {
		six = six || s.CIDR.Addr().Is6()
		four = four || s.CIDR.Addr().Is4()
	}
	if four {
		w.Objects = append(w.Objects, &kernel.Sysctl{Key: "net/ipv4/ip_forward", Value: "1", IfZero: true, IsShared: true})
	}
	if six {
		w.Objects = append(w.Objects, &kernel.Sysctl{Key: "net/ipv6/conf/all/forwarding", Value: "1", IfZero: true, IsShared: true})
	}
}

// masquerade gives what leaves the cluster's networks the host's address, where a
// network wants that.
func (w *Wanted) masquerade(networks []*cluster.Network) {
	if !slices.ContainsFunc(networks, func(n *cluster.Network) bool { return n.NAT }) {
		return
	}
	const chain = "postrouting"
	add := func(what, text string) {
		w.Objects = append(w.Objects, &kernel.NFT{Family: "inet", Table: backend.Table, What: what, Name: chain, Text: text})
	}
	add("chain", "type nat hook postrouting priority 104; policy accept")
	var all []netip.Prefix
	for _, n := range networks {
		for _, s := range n.Subnets {
			all = append(all, s.CIDR)
		}
	}
	for _, p := range append(all, netip.MustParsePrefix("224.0.0.0/4"), netip.MustParsePrefix("ff00::/8")) {
		add("rule", fmt.Sprintf("%s daddr %s return", family(p), p))
	}
	for _, n := range networks {
		for _, s := range n.Subnets {
			if n.NAT {
				add("rule", fmt.Sprintf("%s saddr %s masquerade", family(s.CIDR), s.CIDR))
			}
		}
	}
}

func family(p netip.Prefix) string {
	if p.Addr().Is6() {
		return "ip6"
	}
	return "ip"
}

// lastResort is a metric behind every other: a bridge's own route to the block, say.
const lastResort = 1 << 20

// unused answers for addresses of this node's blocks that no container has: sent
// on they would come back by a tunnel or a default route.
func (w *Wanted) unused(list []netip.Prefix) {
	for _, p := range list {
		w.Objects = append(w.Objects, &kernel.Route{Dst: p, Type: kernel.Unreachable, Metric: lastResort})
	}
}

// peersOf are the other nodes that have something of a network, in order of name.
func peersOf(s *cluster.Snapshot, n *cluster.Network, self *cluster.Node) (out []backend.Peer) {
	dst := map[string][]netip.Prefix{}
	for _, b := range s.Blocks {
		if b.Network == n.Name && b.Node != self.Name {
			dst[b.Node] = append(dst[b.Node], b.CIDR)
		}
	}
	for _, a := range s.Addresses {
		if a.Network == n.Name && a.Node != self.Name && a.Node != "" {
			dst[a.Node] = append(dst[a.Node], netip.PrefixFrom(a.IP, a.IP.BitLen()))
		}
	}
	for _, name := range sortedKeys(dst) {
		node := s.Nodes[name]
		if node == nil {
			continue // removed; its blocks are reclaimed after a while
		}
		slices.SortFunc(dst[name], netip.Prefix.Compare)
		out = append(out, backend.Peer{Node: node, Dst: dst[name]})
	}
	return out
}
