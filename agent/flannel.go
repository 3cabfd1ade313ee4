package agent

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/agent/backend"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/config"
)

// flannelPeers adds the nodes of flannel's. What flanneld leased is its node's,
// whatever our keys say: a node of ours may have gone back to it.
func flannelPeers(s *cluster.Snapshot, self *cluster.Node, ours []backend.Peer) (out []backend.Peer) {
	nodes, dst, told := map[string]*cluster.Node{}, map[string][]netip.Prefix{}, map[string]*cluster.FlannelLease{}
	leased := map[netip.Prefix]bool{}
	for _, key := range s.Leases() {
		l := s.Flannel[key]
		if l.Ours != "" && told[l.Ours] == nil {
			told[l.Ours] = l
		}
		if l.IsOf(self) || l.Ours != "" && hasBlock(s, l.Subnets[0]) {
			continue
		}
		name := l.NodeName()
		nodes[name], dst[name] = l.Node(), append(dst[name], l.Subnets...)
		for _, p := range l.Subnets {
			leased[p] = true
		}
	}
	for _, p := range ours {
		p.Dst = slices.DeleteFunc(slices.Clone(p.Dst), func(b netip.Prefix) bool { return leased[b] })
		if l := told[p.Node.Name]; l != nil {
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

// hasBlock tells whether a lease that our agent wrote is a block by now: they are written
// at once, and need not be heard of at once.
func hasBlock(s *cluster.Snapshot, p netip.Prefix) bool {
	return s.Blocks[cluster.BlockKey(cluster.DefaultNetwork, p)] != nil
}

// besideFlannel are a node's blocks with the subnet that its flanneld had, which is
// its own before the store says so.
func besideFlannel(s *cluster.Snapshot, self *cluster.Node, blocks []netip.Prefix) []netip.Prefix {
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

// beside works out what this node is to flannel's nodes. It keeps the hardware address
// that its flanneld told, so that they have nothing to learn anew.
func (a *Agent) beside(self *cluster.Node, h *Host) {
	if a.o.Config.Flannel.Prefix == "" {
		return
	}
	h.Flannel = true
	var now *cluster.FlannelLease
	a.view.read(func(s *cluster.Snapshot) {
		if l := s.LeaseOf(self); l != nil && l.Type == cluster.VXLAN {
			self.Tunnel, self.Tunnel6 = l.MAC, l.MAC6
		}
		if n := s.Networks[cluster.DefaultNetwork]; n != nil {
			now = backend.Lease(n, self)
		}
	})
	if now == nil || !a.view.isFresh() { // what was known of an earlier life may be another's by now
		return
	}
	if was := a.lease.Swap(now); was == nil || fmt.Sprint(*was) != fmt.Sprint(*now) {
		a.manager.Wake()
	}
}

// flannelNetwork is the network that flannel's own configuration says; nil if it says none.
func (p *publisher) flannelNetwork() (*cluster.Network, error) {
	e := p.view.entry(cluster.FlannelConfigKey)
	if e.Revision == 0 {
		return nil, nil
	}
	n, err := config.ParseNetConf(e.Value)
	if err != nil {
		return nil, fmt.Errorf("%sconfig of flannel: %w", p.conf.Flannel.Prefix, err)
	}
	return n, nil
}
