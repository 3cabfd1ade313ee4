package agent

import (
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/agent/backend"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/kernel"
)

// Wanted is what a node should hold.
type Wanted struct {
	Objects  kernel.Objects // of the host's namespace
	Spaces   []Space        // isolated networks, by name
	Problems []backend.Problem
	Left     []string                     // what of the store is not heeded, and why
	MTU      map[string]int               // bytes, of the containers' links, by network
	By       map[string]map[string]string // how each node is joined, by network and node

	bare     bool // this node has no addresses of the default network yet
	needsVNI bool // an isolated network that is needed here has none yet
}

// Compile works out what a node has to hold. It is pure: the same snapshot and
// host give the same objects in the same order.
func Compile(s *cluster.Snapshot, self *cluster.Node, h Host) Wanted {
	w := Wanted{MTU: map[string]int{}, By: map[string]map[string]string{}}
	s, bad := sound(s, self)
	w.Left = left(s, bad)
	present := presence(s, self.Name)
	ends := natEnds(s, present)
	w.rules(s, ends)
	if n := s.Networks[cluster.DefaultNetwork]; n != nil {
		w.shared(s, n, self, h)
	}
	w.isolated(s, self, h, present, ends)
	w.guard(s, h.Underlay.Link)
	return w
}

// shared works out the network that lives in the host's namespace.
func (w *Wanted) shared(s *cluster.Snapshot, n *cluster.Network, self *cluster.Node, h Host) {
	blocks := s.BlocksOf(n.Name, self.Name)
	w.bare = len(blocks) == 0 && slices.ContainsFunc(n.Subnets, cluster.Subnet.InEveryChoice)
	if h.Flannel {
		blocks = besideFlannel(s, self, blocks)
	}
	out := backend.Compile(backend.Input{
		Network: n, Self: self, Blocks: blocks, Underlay: h.Underlay, Peers: peersOf(s, n, self),
		KeyFile: h.KeyFile, Program: h.Program, Socket: h.Socket, Flannel: h.Flannel, Learned: h.Learned,
	})
	if h.Flannel {
		backend.TakeOver(out.Objects)
	}
	w.Objects = append(w.Objects, forwarding(n, kernel.Host)...)
	w.Objects = append(w.Objects, unused(blocks, kernel.Host)...)
	if h.Tallest > out.MTU {
		w.Objects = append(w.Objects, backend.Clamp(out.Tunnels)...)
	}
	w.Objects = append(w.Objects, out.Objects...)
	w.Problems = append(w.Problems, out.Problems...)
	w.MTU[n.Name], w.By[n.Name] = out.MTU, out.By
}

// forwarding lets packets of containers pass.
func forwarding(n *cluster.Network, in kernel.Side) (out kernel.Objects) {
	keys := map[bool]string{false: "net/ipv4/ip_forward", true: "net/ipv6/conf/all/forwarding"}
	for _, six := range families(n) {
		out = append(out, &kernel.Sysctl{In: in, Key: keys[six], Value: "1", IfZero: true, IsShared: true})
	}
	return out
}

// lastResort is a metric behind every other: a bridge's own route to the block, say.
const lastResort = 1 << 20

// unused answers for addresses of this node's blocks that no container has: sent
// on they would come back by a tunnel or a default route.
func unused(blocks []netip.Prefix, in kernel.Side) (out kernel.Objects) {
	for _, p := range blocks {
		out = append(out, &kernel.Route{In: in, Dst: p, Type: kernel.Unreachable, Metric: lastResort})
	}
	return out
}

// peersOf are the other nodes that have something of a network, in order of name.
func peersOf(s *cluster.Snapshot, n *cluster.Network, self *cluster.Node) (out []backend.Peer) {
	dst := make(map[string][]netip.Prefix, len(s.Nodes))
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
	out = make([]backend.Peer, 0, len(dst))
	for _, name := range sortedKeys(dst) {
		node := s.Nodes[name]
		if node == nil {
			continue // removed; its blocks are reclaimed after a while
		}
		slices.SortFunc(dst[name], netip.Prefix.Compare)
		out = append(out, backend.Peer{Node: node, Dst: dst[name]})
	}
	if n.Name == cluster.DefaultNetwork && len(s.Flannel) > 0 {
		out = flannelPeers(s, self, out)
	}
	return out
}
