package desired

import (
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/agent/backend"
	"github.com/fairlead/fairlead/agent/cluster"
)

// flannelPeers adds flannel's nodes to the peers. A subnet leased by flanneld belongs to that node even if our keys say
// otherwise: the node may have gone back to flannel.
func flannelPeers(s *cluster.Snapshot, self *cluster.Node, own []backend.Peer) (out []backend.Peer) {
	nodes, dst, leaseOf := map[string]*cluster.Node{}, map[string][]netip.Prefix{}, map[string]*cluster.FlannelLease{}
	leased := map[netip.Prefix]bool{}
	for _, key := range s.Leases() {
		l := s.Flannel[key]
		if l.FairleadNode != "" && leaseOf[l.FairleadNode] == nil {
			leaseOf[l.FairleadNode] = l
		}
		if l.IsOf(self) || l.FairleadNode != "" && hasBlock(s, l.Subnets[0]) {
			continue
		}
		name := l.NodeName()
		nodes[name], dst[name] = l.Node(), append(dst[name], l.Subnets...)
		for _, p := range l.Subnets {
			leased[p] = true
		}
	}
	for _, p := range own {
		p.Dst = slices.DeleteFunc(slices.Clone(p.Dst), func(b netip.Prefix) bool { return leased[b] })
		if l := leaseOf[p.Node.Name]; l != nil {
			n := *p.Node
			n.Tunnel, n.Tunnel6 = l.MAC, l.MAC6
			p.Node = &n
		}
		if len(p.Dst) > 0 {
			out = append(out, p)
		}
	}
	for _, name := range sortedKeys(nodes) {
		slices.SortFunc(dst[name], netip.Prefix.Compare)
		out = append(out, backend.Peer{Node: nodes[name], Dst: dst[name]})
	}
	return out
}

// hasBlock reports whether a lease that our agent wrote has its block in the snapshot. Both are written in one
// transaction but may arrive separately.
func hasBlock(s *cluster.Snapshot, p netip.Prefix) bool {
	return s.Blocks[cluster.BlockKey(cluster.DefaultNetwork, p)] != nil
}

// withFlannelLease adds the subnet of this node's former flanneld to its blocks, before the store lists it as a block.
func withFlannelLease(s *cluster.Snapshot, self *cluster.Node, blocks []netip.Prefix) []netip.Prefix {
	if l := s.LeaseOf(self); l != nil {
		for _, p := range l.Subnets {
			if !slices.Contains(blocks, p) {
				blocks = append(blocks, p)
			}
		}
	}
	slices.SortFunc(blocks, netip.Prefix.Compare)
	return blocks
}
