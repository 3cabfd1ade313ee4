package agent

import (
	"fmt"

	"github.com/fairlead/fairlead/agent/backend"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/desired"
)

// setFlannel fills in what flannel's nodes need to reach this node. It keeps the hardware address that this host's
// flanneld published, so that their forwarding entries stay valid.
func (a *Agent) setFlannel(self *cluster.Node, h *desired.Host) {
	if a.o.Config.Flannel.Prefix == "" {
		return
	}
	h.Flannel = true
	if !a.o.Config.FlannelInEtcd() {
		return // compile calls setFlannelLease
	}
	var now *cluster.FlannelLease
	a.storeCache.read(func(s *cluster.Snapshot) {
		if l := s.LeaseOf(self); l != nil && l.Type == cluster.VXLAN {
			self.Tunnel, self.Tunnel6 = l.MAC, l.MAC6
		}
		if n := s.Networks[cluster.DefaultNetwork]; n != nil {
			now = backend.Lease(n, self)
		}
	})
	if now == nil || !a.storeCache.synced() { // cached data may be outdated
		return
	}
	if old := a.lease.Swap(now); old == nil || fmt.Sprint(*old) != fmt.Sprint(*now) {
		a.manager.Wake()
	}
}

// setFlannelLease adds to the node's document what flannel's nodes need, as long as the cluster has one. In Kubernetes, the
// store writes it as flannel's annotations. The hardware addresses stay without them, for a way back. They must come from
// the snapshot that the objects are computed from: from an earlier one, the links would get others.
func setFlannelLease(s *cluster.Snapshot, self *cluster.Node) {
	if n := s.Nodes[self.Name]; n != nil {
		self.Tunnel, self.Tunnel6 = n.Tunnel, n.Tunnel6
	}
	network := s.Networks[cluster.DefaultNetwork]
	for name, n := range s.Nodes {
		if network != nil && n.Flannel != nil && name != self.Name {
			self.FlannelLease = backend.Lease(network, self)
		}
	}
}

// flannelNetwork returns the network that flannel's configuration in the store describes, or nil if there is none.
func (p *publisher) flannelNetwork() (*cluster.Network, error) {
	var text []byte
	p.storeCache.read(func(s *cluster.Snapshot) {
		if s.FlannelConfig != nil {
			text = s.FlannelConfig.Text
		}
	})
	if text == nil {
		return nil, nil
	}
	n, err := config.ParseNetConf(text)
	if err != nil {
		return nil, fmt.Errorf("%sconfig of flannel: %w", p.conf.Flannel.Prefix, err)
	}
	return n, nil
}
