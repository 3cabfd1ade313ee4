package admin

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/agent/address"
	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/cluster"
)

// IPAM describes the use of the cluster's addresses.
type IPAM struct {
	Subnets   []SubnetUse  `json:"subnets"`
	Blocks    []BlockUse   `json:"blocks"`
	Addresses []AddressUse `json:"addresses"`
	Pending   int          `json:"pendingReleases"`
}

// SubnetUse is a subnet of a network.
type SubnetUse struct {
	Network string `json:"network"`
	Pool    string `json:"pool,omitempty"`
	CIDR    string `json:"cidr"`
	Assign  string `json:"assign"`
	Blocks  int    `json:"blocks"` // blocks that nodes have
	Of      uint64 `json:"of"`     // blocks in the subnet; 0 if the cluster assigns single addresses
}

// BlockUse is a node's block.
type BlockUse struct {
	Network string `json:"network"`
	Block   string `json:"block"`
	Node    string `json:"node"`
	Used    *int   `json:"used"` // nil: another node's, and the store keeps no containers
	Size    int    `json:"size"`
	State   string `json:"state"` // "", "here", "flannel" (flannel's plugin assigns the addresses), "leaving", "node removed"
}

// AddressUse is an address that the cluster assigned to one owner.
type AddressUse struct {
	Network string `json:"network"`
	Address string `json:"address"`
	Owner   string `json:"owner"`
	Fixed   bool   `json:"fixed"`
	Node    string `json:"node"`
	Where   string `json:"container"`
}

// UseOf returns the addresses of one network, or of all if network is "". The blocks of this node are counted by what
// its disk has, those of other nodes by what their agents report about containers.
func UseOf(s *cluster.Snapshot, node string, h *address.LocalState, network string) (*IPAM, error) {
	if network != "" && s.Networks[network] == nil && !hasAddresses(s, network) {
		return nil, notFound("network", network, sortedKeys(s.Networks))
	}
	v := &IPAM{Subnets: []SubnetUse{}, Blocks: []BlockUse{}, Addresses: []AddressUse{}, Pending: len(h.Pending)}
	for _, name := range sortedKeys(s.Networks) {
		for _, x := range s.Networks[name].Subnets {
			if network == "" || network == name {
				v.Subnets = append(v.Subnets, subnetUse(s, name, x))
			}
		}
	}
	reported := reportedUse(s)
	for _, key := range sortedKeys(s.Blocks) {
		if b := s.Blocks[key]; network == "" || network == b.Network {
			v.Blocks = append(v.Blocks, blockUse(s, b, node, h, reported))
		}
	}
	for _, key := range sortedKeys(s.Addresses) {
		if x := s.Addresses[key]; network == "" || network == x.Network {
			v.Addresses = append(v.Addresses, AddressUse{x.Network, x.IP.String(), x.Owner, x.Fixed, x.Node, x.Container})
		}
	}
	return v, nil
}

func hasAddresses(s *cluster.Snapshot, network string) bool {
	for _, x := range s.Addresses {
		if x.Network == network {
			return true
		}
	}
	return false
}

func subnetUse(s *cluster.Snapshot, network string, x cluster.Subnet) SubnetUse {
	out := SubnetUse{Network: network, Pool: x.Name, CIDR: x.CIDR.String(), Assign: cmp.Or(x.Assign, cluster.AssignBlock)}
	switch out.Assign {
	case cluster.AssignCluster:
		return out
	case cluster.AssignBlock:
		out.Of = 1 << min(x.BlockBits()-x.CIDR.Bits(), 62)
	}
	for _, b := range s.Blocks {
		if b.Network == network && x.CIDR.Contains(b.CIDR.Addr()) {
			out.Blocks++
		}
	}
	return out
}

func blockUse(s *cluster.Snapshot, b *cluster.Block, node string, h *address.LocalState, reported map[blockOf]int) BlockUse {
	out := BlockUse{Network: b.Network, Block: b.CIDR.String(), Node: b.Node}
	subnet := local.Subnet{CIDR: b.Subnet}
	if n := s.Networks[b.Network]; n != nil {
		for _, x := range n.Subnets {
			if x.CIDR.Contains(b.CIDR.Addr()) {
				subnet.Exclude = x.Exclude
			}
		}
	}
	if set, err := subnet.Ranges(b.CIDR); err == nil {
		out.Size = set.Size(1 << 16)
	}
	var ips []netip.Addr
	for _, x := range h.Held[b.Network] {
		ips = append(ips, x.Addr)
	}
	byFlannel := b.Node == node && leasedToFlannel(h, b)
	if byFlannel {
		ips = h.HostLocal
	}
	used := 0
	for _, ip := range ips {
		if b.CIDR.Contains(ip) {
			used++
		}
	}
	if b.Node != node {
		used = reported[blockOf{b.Network, b.CIDR.Masked()}]
	}
	if b.Node == node || !s.NoEndpoints {
		out.Used = &used
	}
	switch {
	case b.Release:
		out.State = "leaving"
	case s.Nodes[b.Node] == nil && !s.Alive[b.Node]:
		out.State = "node removed"
	case byFlannel:
		out.State = "flannel"
	case b.Node == node:
		out.State = "here"
	}
	return out
}

// leasedToFlannel reports whether flannel's plugin assigns the addresses of a block on this node.
func leasedToFlannel(h *address.LocalState, b *cluster.Block) bool {
	n := h.Networks[b.Network]
	return n != nil && slices.ContainsFunc(n.Subnets, func(s local.Subnet) bool { return slices.Contains(s.Leased, b.CIDR) })
}

// blockOf is a block of a network.
type blockOf struct {
	network string
	block   netip.Prefix
}

// reportedUse counts the addresses in each block that nodes report for their containers.
func reportedUse(s *cluster.Snapshot) map[blockOf]int {
	lengths, out := map[string]map[int]bool{}, map[blockOf]int{} // lengths of each network's blocks: only few
	for _, b := range s.Blocks {
		if lengths[b.Network] == nil {
			lengths[b.Network] = map[int]bool{}
		}
		lengths[b.Network][b.CIDR.Bits()] = true
	}
	for _, p := range s.Endpoints {
		for _, ip := range p.IPs {
			for bits := range lengths[p.Network] {
				if block, err := ip.Prefix(bits); err == nil {
					out[blockOf{p.Network, block}]++
				}
			}
		}
	}
	return out
}
