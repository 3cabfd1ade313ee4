package cluster

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
)

// special returns the first special-purpose range that overlaps a prefix, with its description, or "" if there is none.
// Hosts cannot be reached at such addresses.
func special(p netip.Prefix) (netip.Prefix, string) {
	for _, s := range specials() {
		if s.prefix.Overlaps(p) {
			return s.prefix, s.what
		}
	}
	return netip.Prefix{}, ""
}

type specialRange struct {
	prefix netip.Prefix
	what   string
}

// specials parses the ranges once, because every node address is checked against them. RFC 6890.
var specials = sync.OnceValue(func() (list []specialRange) {
	for _, s := range []struct{ prefix, what string }{
		{"0.0.0.0/8", "not for hosts"}, {"127.0.0.0/8", "loopback"}, {"169.254.0.0/16", "link-local"},
		{"224.0.0.0/4", "multicast"}, {"255.255.255.255/32", "broadcast"},
		{"::/8", "not for hosts"}, {"fe80::/10", "link-local"}, {"ff00::/8", "multicast"},
		{"fdfa:1ead::/32", "those of a host's links to isolated networks"},
	} {
		list = append(list, specialRange{netip.MustParsePrefix(s.prefix), s.what})
	}
	return list
})

// CheckNodeAddress returns an error if other nodes cannot send packets to a valid address.
func CheckNodeAddress(a netip.Addr) error {
	if p, what := special(netip.PrefixFrom(a, a.BitLen())); what != "" {
		return fmt.Errorf("the address %s cannot be a node's address: %s is %s", a, p, what)
	}
	return nil
}

// Validate returns an error if other nodes cannot send packets to the node.
func (n *Node) Validate() error {
	var errs []error
	if err := CheckNodeName(n.Name); err != nil {
		errs = append(errs, fmt.Errorf("node %q: %w", n.Name, err))
	}
	six := map[bool]bool{}
	for _, a := range n.Addresses {
		if six[a.Addr().Is6()] {
			errs = append(errs, fmt.Errorf("node %s: %s is a second address of its family: want one of each at most", n.Name, a))
			break
		}
		six[a.Addr().Is6()] = true
		if !a.IsValid() {
			errs = append(errs, fmt.Errorf(`node %s: an address is %s: want one like "192.0.2.1/24"`, n.Name, a))
		} else if err := CheckNodeAddress(a.Addr()); err != nil {
			errs = append(errs, fmt.Errorf("node %s: %w", n.Name, err))
		}
	}
	return errors.Join(errs...)
}

// Covers reports whether a prefix is inside one of the network's subnets.
func (n *Network) Covers(p netip.Prefix) bool {
	return slices.ContainsFunc(n.Subnets, func(s Subnet) bool { return s.CIDR.Contains(p.Addr()) && s.CIDR.Bits() <= p.Bits() })
}

// CanBlock returns an error if a block is not a valid one of the network. All blocks that nodes claim of a subnet have one
// length, so they cannot overlap. In a subnet whose ranges Kubernetes gives nodes, nodes claim none.
func (n *Network) CanBlock(b *Block) error {
	i := slices.IndexFunc(n.Subnets, func(s Subnet) bool { return s.CIDR.Contains(b.CIDR.Addr()) && s.CIDR.Bits() <= b.CIDR.Bits() })
	if i < 0 {
		return fmt.Errorf("it is in no subnet of network %s", n.Name)
	}
	switch s := n.Subnets[i]; {
	case s.Assign == AssignPodCIDR && !b.OfNode:
		return fmt.Errorf("its subnet of network %s has no blocks but the podCIDRs of the Nodes", n.Name)
	case s.Assign == AssignCluster:
		return fmt.Errorf("its subnet of network %s has no blocks: its addresses are assigned one by one", n.Name)
	case s.Assign != AssignPodCIDR && s.BlockBits() != b.CIDR.Bits():
		return fmt.Errorf("blocks of its subnet of network %s have another length", n.Name)
	}
	return nil
}

// AssignsSingleAddresses reports whether an address is in a subnet whose addresses are assigned individually.
func (n *Network) AssignsSingleAddresses(a netip.Addr) bool {
	return slices.ContainsFunc(n.Subnets, func(s Subnet) bool { return s.Assign == AssignCluster && s.CIDR.Contains(a) })
}
