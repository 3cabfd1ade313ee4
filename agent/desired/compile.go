package desired

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/backend"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/kernel"
)

// State is the desired state of one node.
type State struct {
	Objects    kernel.Objects // in the host's namespace
	Namespaces []Namespace    // of isolated networks, sorted by name
	Problems   []backend.Problem
	Bad        map[string]error             // keys in the store that are ignored, with the reason
	Invalid    []string                     // the same as text, sorted
	MTU        map[string]int               // bytes, of container links, by network
	By         map[string]map[string]string // how each node is reached, by network and node
	Blocks     map[string]*cluster.Block    // valid blocks, by key

	NoBlocks error // why new containers of the default network get no addresses here
	NeedsVNI bool  // an isolated network that this node needs has no VNI yet
}

// Compile returns the desired state of a node. It is pure: the same snapshot and host give the same objects in the same
// order.
func Compile(s *cluster.Snapshot, self *cluster.Node, h Host) State {
	w := State{MTU: map[string]int{}, By: map[string]map[string]string{}}
	s, bad := Valid(s, self)
	w.Blocks = s.Blocks
	w.Bad = maps.Clone(s.Problems)
	maps.Copy(w.Bad, bad)
	for name, n := range s.Networks { // containers that have its addresses keep them
		if err := s.Overlap(n); err != nil {
			w.Bad[cluster.NetworkKey(name)] = err
		}
	}
	w.Invalid = describe(w.Bad)
	present := Present(s, self.Name, h.Wanted)
	ends := natLinks(s, present)
	w.rules(s, ends)
	if n := s.Networks[cluster.DefaultNetwork]; n != nil {
		w.shared(s, n, self, h)
	}
	w.isolated(s, self, h, present, ends)
	w.guard(s, h.Underlay.Link)
	return w
}

// shared adds the objects of the network in the host's namespace.
func (w *State) shared(s *cluster.Snapshot, n *cluster.Network, self *cluster.Node, h Host) {
	blocks := s.BlocksOf(n.Name, self.Name)
	w.NoBlocks = missingBlocks(n, blocks)
	if h.Flannel {
		blocks = withFlannelLease(s, self, blocks)
	}
	out := backend.Compile(backend.Input{
		Network: n, Self: self, Blocks: blocks, Underlay: h.Underlay, Peers: peersOf(s, n, self),
		KeyFile: h.KeyFile, Program: h.Program, Socket: h.Socket, Flannel: h.Flannel, Learned: h.Learned,
	})
	if h.Flannel {
		backend.TakeOver(out.Objects)
	}
	for _, six := range families(n) {
		w.Objects = append(w.Objects, kernel.Forwarding(kernel.Host, six, h.Uplinks)...)
	}
	if slices.Contains(families(n), false) {
		w.Objects = append(w.Objects, linkForwarding(append([]string{h.Underlay.Link}, out.Tunnels...))...)
	}
	w.Objects = append(w.Objects, unreachableRoutes(blocks, kernel.Host)...)
	if h.MaxLinkMTU > out.TunnelMTU { // the network may configure a larger MTU than the tunnels have
		w.Objects = append(w.Objects, backend.Clamp(out.Tunnels)...)
	}
	w.Objects = append(w.Objects, out.Objects...)
	w.Problems = append(w.Problems, out.Problems...)
	for _, b := range s.LostPodCIDRs(self.Name) {
		w.Problems = append(w.Problems, backend.Problem{Node: self.Name, Err: fmt.Errorf(
			"the podCIDR %s of this Node also belongs to node %s: delete one of the two Nodes, so that it gets another podCIDR when it registers again", b.CIDR, b.Node)})
	}
	for _, b := range s.OverlappingPodCIDRs(self.Name) {
		w.Problems = append(w.Problems, backend.Problem{Node: self.Name, Err: fmt.Errorf(
			"a podCIDR of this Node overlaps with %s of node %s, so two pods may get one address: delete one of the two Nodes, so that it gets another podCIDR when it registers again", b.CIDR, b.Node)})
	}
	w.MTU[n.Name], w.By[n.Name] = out.MTU, out.By
}

// linkForwarding enables IPv4 forwarding on the links from which other nodes' packets come. For each link, a setting of its own
// overrides ip_forward. IPv6 has only one setting.
func linkForwarding(links []string) (out kernel.Objects) {
	for _, l := range links {
		if l != "" {
			out = append(out, &kernel.Sysctl{In: kernel.Host, Key: "net/ipv4/conf/" + l + "/forwarding", Value: "1", IfZero: true, IsShared: true, Optional: true})
		}
	}
	return out
}

// missingBlocks returns an error if a node has no block of a family. Requests without a pool get an address of each family
// that has a subnet for them. A subnet that is excluded completely has none.
func missingBlocks(n *cluster.Network, blocks []netip.Prefix) error {
	for _, six := range families(n) {
		var subnets []string
		assign, has := "", false
		for _, s := range n.Subnets {
			if !s.UsedByDefault() || s.CIDR.Addr().Is6() != six || !local.Usable(s, s.CIDR) {
				continue
			}
			subnets, assign = append(subnets, s.CIDR.String()), s.Assign
			has = has || slices.ContainsFunc(blocks, func(b netip.Prefix) bool { return s.CIDR.Contains(b.Addr()) })
		}
		if len(subnets) == 0 || has {
			continue
		}
		missing := strings.Join(subnets, ", ")
		if assign == cluster.AssignPodCIDR {
			return fmt.Errorf("this Node has no podCIDR of its own in %s: see --cluster-cidr and --allocate-node-cidrs of kube-controller-manager. A Node gets its podCIDRs when it registers: if it has others, delete it, and restart its kubelet", missing)
		}
		return fmt.Errorf("this node has no addresses of %s yet", missing)
	}
	return nil
}

// lastResort is a metric behind all other routes, for example a bridge's own route to the block.
const lastResort = 1 << 20

// unreachableRoutes rejects packets to unused addresses of this node's blocks. Without the routes, the packets would
// follow the default route or a tunnel and come back.
func unreachableRoutes(blocks []netip.Prefix, in kernel.Side) (out kernel.Objects) {
	for _, p := range blocks {
		out = append(out, &kernel.Route{In: in, Dst: p, Type: kernel.Unreachable, Metric: lastResort})
	}
	return out
}

// peersOf returns the other nodes that have blocks or addresses of a network, sorted by name.
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
			continue // the node was removed; its blocks are reclaimed later
		}
		slices.SortFunc(dst[name], netip.Prefix.Compare)
		out = append(out, backend.Peer{Node: node, Dst: dst[name]})
	}
	if n.Name == cluster.DefaultNetwork && len(s.Flannel) > 0 {
		out = flannelPeers(s, self, out)
	}
	return out
}
