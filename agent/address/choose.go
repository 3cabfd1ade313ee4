package address

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/cluster"
)

// errExhausted means that every address in the ranges is in use.
var errExhausted = errors.New("no IP addresses available") // constant

// errLater means that the same round releases the address; the next round can assign it.
var errLater = errors.New("the address is being released") // constant

// document returns the store's document of an assigned address.
func (m *Manager) document(c *claim, w local.Want, ip netip.Addr) *cluster.Address {
	owner := c.Pod
	if owner == "" {
		owner = c.Container + " " + c.IfName
	}
	return &cluster.Address{Network: c.Network, IP: ip, Owner: owner, Fixed: w.Fixed, Node: m.Node, Machine: m.Machine, Container: c.Container, IfName: c.IfName}
}

// checkAllowed rejects requests for addresses that the cluster does not assign individually.
func (m *Manager) checkAllowed(c *claim, w local.Want) error {
	if w.Fixed && c.Pod == "" {
		return errors.New("a fixed address needs a pod name: CNI_ARGS has no K8S_POD_NAMESPACE and K8S_POD_NAME")
	}
	if c.Whereabouts {
		return nil
	}
	n := m.state.snap.Networks[c.Network]
	if n == nil {
		return unknownNetwork(c.Network, m.state)
	}
	if err := m.state.snap.Overlap(n); err != nil {
		return err
	}
	for _, r := range w.Ranges {
		if !slices.ContainsFunc(n.Subnets, func(s cluster.Subnet) bool {
			return s.Assign == cluster.AssignCluster && s.CIDR.Contains(r.First) && s.CIDR.Contains(r.Last)
		}) {
			return fmt.Errorf(`%s is in no subnet of network %s that has "assign": "cluster"`, r, c.Network)
		}
	}
	return nil
}

// choose returns an address: the one that the container already has, the pod's fixed one, the requested one, or a free
// one.
func (m *Manager) choose(c *claim, w local.Want, r *round, mine map[string]bool) (netip.Addr, error) {
	in := func(ip netip.Addr) bool {
		return slices.ContainsFunc(w.Ranges, func(r local.Span) bool { return r.Contains(ip) }) && (!w.IP.IsValid() || w.IP == ip)
	}
	have := m.state.owners[holder{c.Network, c.Container, c.IfName}]
	if w.Fixed {
		have = m.state.fixed[fixedOwner{c.Network, c.Pod, c.IfName}]
	}
	for key := range have {
		a := m.state.snap.Addresses[key]
		switch {
		case !in(a.IP) || mine[key] || a.Fixed != w.Fixed:
		case !r.frees[key]:
			return a.IP, nil
		case w.Fixed:
			return netip.Addr{}, errLater // the pod's only fixed address
		}
	}
	if w.IP.IsValid() {
		return w.IP, m.checkRequested(c, w, in(w.IP), r, mine)
	}
	for ip := range spread(w.Ranges, r.rank, r.nodes) {
		key := cluster.AddressKey(c.Network, ip)
		if m.state.revision(key) == 0 && !r.taken[key] && !mine[key] {
			return ip, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("%w in %v: all addresses are in use", errExhausted, w.Ranges)
}

// checkRequested checks whether a container may have the requested address. The pod's name identifies the pod on any
// node. Another owner's address is reassigned only if its node was removed.
func (m *Manager) checkRequested(c *claim, w local.Want, inside bool, r *round, mine map[string]bool) error {
	key := cluster.AddressKey(c.Network, w.IP)
	a := m.state.snap.Addresses[key]
	switch {
	case !inside:
		return fmt.Errorf("%s is not in %v", w.IP, w.Ranges)
	case r.frees[key]:
		return errLater
	case r.taken[key] || mine[key]:
		return fmt.Errorf("%s is being assigned to another container", w.IP)
	case a == nil:
		return nil
	case c.Pod != "" && a.Owner == c.Pod && (a.IfName == c.IfName || a.IfName == ""):
		return nil
	case a.Fixed:
		return fmt.Errorf("%s is fixed for %s: see \"fairlead ipam show\"", w.IP, a.Owner)
	case a.Node == m.Node || m.state.snap.Nodes[a.Node] != nil || m.state.snap.Problems[cluster.NodeKey(a.Node)] != nil:
		return fmt.Errorf("%s belongs to %s on node %s", w.IP, a.Owner, a.Node)
	}
	return nil
}
