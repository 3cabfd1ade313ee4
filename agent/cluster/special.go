package cluster

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
)

// special is the first of those ranges that overlap with a prefix of which no host has
// an address by which others reach it, and what they are; "": none.
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

// specials are read once: each node's addresses are looked up in them. RFC 6890.
var specials = sync.OnceValue(func() (list []specialRange) {
	for _, s := range []struct{ prefix, what string }{
		{"0.0.0.0/8", "no address of a host"}, {"127.0.0.0/8", "each host's own"}, {"169.254.0.0/16", "each link's own"},
		{"224.0.0.0/4", "groups"}, {"255.255.255.255/32", "every host on a link"},
		{"::/8", "no address of a host"}, {"fe80::/10", "each link's own"}, {"ff00::/8", "groups"},
	} {
		list = append(list, specialRange{netip.MustParsePrefix(s.prefix), s.what})
	}
	return list
})

// Validate says why a node cannot be one that others send packets to.
func (n *Node) Validate() error {
	var errs []error
	if !ValidName(n.Name) {
		errs = append(errs, fmt.Errorf("node %q: want letters, digits, '.', '_' and '-', beginning with a letter or digit, at most 64", n.Name))
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
		} else if p, what := special(netip.PrefixFrom(a.Addr(), a.Addr().BitLen())); what != "" {
			errs = append(errs, fmt.Errorf("node %s: its address is %s: those of %s are %s", n.Name, a, p, what))
		}
	}
	return errors.Join(errs...)
}

// Covers tells whether something is a part of a network: a block, or a single address.
func (n *Network) Covers(p netip.Prefix) bool {
	return slices.ContainsFunc(n.Subnets, func(s Subnet) bool { return s.CIDR.Contains(p.Addr()) && s.CIDR.Bits() <= p.Bits() })
}

// CanBlock says why a prefix is no block of a network. As all blocks of a subnet have
// one length, no two of them overlap.
func (n *Network) CanBlock(p netip.Prefix) error {
	for _, s := range n.Subnets {
		if s.CIDR.Contains(p.Addr()) && s.BlockBits() == p.Bits() {
			return nil
		}
	}
	if n.Covers(p) {
		return fmt.Errorf("blocks of its subnet of network %s have another length", n.Name)
	}
	return fmt.Errorf("it is in no subnet of network %s", n.Name)
}

// GivesOneByOne tells whether an address is of a subnet that is not given in blocks.
func (n *Network) GivesOneByOne(a netip.Addr) bool {
	return slices.ContainsFunc(n.Subnets, func(s Subnet) bool { return s.Assign == AssignCluster && s.CIDR.Contains(a) })
}
