package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// BackendTypes returns the types that Backend.Type accepts.
func BackendTypes() []string { return backendTypes() }

// FieldError is a problem with one field of a network. Network.Validate returns FieldErrors.
type FieldError struct {
	Network string // name of the network
	Field   string // path of the field in the network's document: "backends[0].type"; "" for the whole document
	Problem error
}

// Error implements error.
func (e *FieldError) Error() string {
	return "network " + e.Network + ": " + strings.TrimLeft(e.Field+" ", " ") + e.Problem.Error()
}

// Unwrap returns the problem.
func (e *FieldError) Unwrap() error { return e.Problem }

// CheckChange returns an error if changing the network old into n would leave a block or an address without a subnet,
// would change how a subnet that has blocks is assigned, or would change whether the network is isolated.
func (s *Snapshot) CheckChange(old, n *Network) error {
	for _, key := range slices.Sorted(maps.Keys(s.Blocks)) {
		b := s.Blocks[key]
		if b.Network != n.Name {
			continue
		}
		was, is := old.assignOf(b.CIDR), n.assignOf(b.CIDR)
		if was != "" && is != "" && was != is {
			return fmt.Errorf("network %s: node %s has the block %s of subnet %s, whose assign cannot change to %q: keep %q, and add another subnet",
				n.Name, b.Node, b.CIDR, b.Subnet, is, was)
		}
		if b.OfNode || old.CanBlock(b) != nil {
			continue
		}
		if n.CanBlock(b) != nil {
			return fmt.Errorf("network %s: node %s has the block %s of subnet %s, which the new configuration lacks: keep the subnet with all of it excluded (exclude: [%s]), delete the containers on it, and then type: fairlead ipam release %s",
				n.Name, b.Node, b.CIDR, b.Subnet, b.Subnet, OnCommandLine(b.CIDR.String(), n.Name))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(s.Addresses)) {
		a := s.Addresses[key]
		if a.Network == n.Name && !slices.ContainsFunc(n.Subnets, func(x Subnet) bool { return x.Assign == AssignCluster && x.CIDR.Contains(a.IP) }) {
			return fmt.Errorf("network %s: the address %s of %s would belong to no subnet with \"assign: cluster\": keep its subnet, or release the address first: fairlead ipam release %s",
				n.Name, a.IP, a.Owner, OnCommandLine(a.IP.String(), n.Name))
		}
	}
	if old.Isolated != n.Isolated {
		return fmt.Errorf("network %s: isolated cannot be changed: create another network", n.Name)
	}
	return nil
}

// assignOf returns how the addresses of a block are assigned, or "" if the block is in no subnet of the network.
func (n *Network) assignOf(block netip.Prefix) string {
	for _, s := range n.Subnets {
		if s.CIDR.Contains(block.Addr()) && s.CIDR.Bits() <= block.Bits() {
			return cmp.Or(s.Assign, AssignBlock)
		}
	}
	return ""
}

// CheckUnused returns an error that lists the blocks and addresses of a network that are in use, each with the command
// that releases it.
func (s *Snapshot) CheckUnused(network string) error {
	containers := map[string]int{}
	for _, e := range s.Endpoints {
		if e.Network == network {
			containers[e.Node]++
		}
	}
	var uses []error
	for _, key := range slices.Sorted(maps.Keys(s.Blocks)) {
		if b := s.Blocks[key]; b.Network == network && !b.OfNode {
			count := fmt.Sprintf(" and %d containers", containers[b.Node])
			if s.NoEndpoints {
				count = ""
			}
			uses = append(uses, fmt.Errorf("node %s has block %s%s: delete the containers, then type: fairlead ipam release %s",
				b.Node, b.CIDR, count, OnCommandLine(b.CIDR.String(), network)))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(s.Addresses)) {
		if a := s.Addresses[key]; a.Network == network {
			uses = append(uses, fmt.Errorf("%s has the address %s: type: fairlead ipam release %s", a.Owner, a.IP, OnCommandLine(a.IP.String(), network)))
		}
	}
	if len(uses) == 0 {
		return nil
	}
	return fmt.Errorf("network %s is in use\n%w", network, errors.Join(uses...))
}

// OnCommandLine returns the arguments of "fairlead ipam release" for a block or an address of a network.
func OnCommandLine(word, network string) string {
	if network == DefaultNetwork {
		return word
	}
	return word + " --network " + network
}
