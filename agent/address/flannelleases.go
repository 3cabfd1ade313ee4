package address

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/store"
)

// In a cluster with flannel nodes, every IPv4 block of this node in the default network also has a flannel lease. One
// transaction creates both if neither exists, so a flannel node and a Fairlead node never get the same block.

// errFlannelSix exists because a flannel lease has one subnet per family, and its key is the IPv4 subnet.
var errFlannelSix = fmt.Errorf("a flannel lease has no room for another IPv6 block: %w", errNoBlock) // constant

// flannelLease returns this node's lease without subnets, or nil if the cluster has no flannel nodes.
func (m *Manager) flannelLease(network string) (*cluster.FlannelLease, error) {
	if m.Flannel == nil || network != cluster.DefaultNetwork {
		return nil, nil
	}
	l := m.Flannel()
	if l == nil {
		return nil, fmt.Errorf("this node's address is not known yet: %w", store.ErrUnavailable)
	}
	return l, nil
}

// withLease adds the flannel lease to a block's claim.
func (m *Manager) withLease(network string, op store.Op, blocks ...netip.Prefix) ([]store.Op, error) {
	l, err := m.flannelLease(network)
	if l == nil || err != nil {
		return []store.Op{op}, err
	}
	if err := m.checkPublished(); err != nil {
		return nil, err
	}
	if blocks[0].Addr().Is6() {
		return nil, errFlannelSix
	}
	write, err := m.lease(l, "", blocks...)
	return []store.Op{op, write}, err
}

// checkPublished delays leases until this node's document is in the store. Otherwise other agents would take the node
// for a removed one.
func (m *Manager) checkPublished() error {
	if m.state.snap.Nodes[m.Node] == nil {
		return fmt.Errorf("this node is not in the store yet: %w", store.ErrUnavailable)
	}
	return nil
}

// lease returns the change that writes a lease of blocks, under the existing key if there is one.
func (m *Manager) lease(l *cluster.FlannelLease, key string, blocks ...netip.Prefix) (store.Op, error) {
	mine := *l
	mine.Subnets = blocks
	if key == "" {
		key = mine.Key()
	}
	value, err := mine.Value()
	return store.Op{Key: key, Value: value, Expect: m.state.revision(key)}, err
}

// syncFlannelLeases makes flannel's keys and this node's blocks agree. It takes over the former flanneld's lease,
// claims the first blocks, and fixes differences.
func (m *Manager) syncFlannelLeases(ctx context.Context) error {
	l, err := m.flannelLease(cluster.DefaultNetwork)
	if l == nil || err != nil {
		return err
	}
	for range attempts {
		m.mu.Lock()
		ops, why, err := m.leaseOps(l)
		m.mu.Unlock()
		if err != nil || len(ops) == 0 {
			return err
		}
		err = m.commit(ctx, ops)
		if err == nil {
			m.Log.Info(why, "key", ops[len(ops)-1].Key)
		} else if !isConflict(err) {
			return fmt.Errorf("write this node's flannel lease: %w", err)
		}
	}
	return errors.New("write this node's flannel lease: too many conflicts with other nodes: try again")
}

// leaseOps returns the next transaction; none if keys and blocks agree.
func (m *Manager) leaseOps(l *cluster.FlannelLease) (ops []store.Op, why string, err error) {
	n := m.state.snap.Networks[cluster.DefaultNetwork]
	if n == nil {
		return nil, "", nil
	}
	if err := m.checkPublished(); err != nil {
		return nil, "", err
	}
	own := m.ownBlocks(n.Name)
	for _, key := range m.state.snap.Leases() {
		have := m.state.snap.Flannel[key]
		switch {
		case have.FairleadNode == "" && have.PublicIP == l.PublicIP && m.fits(n, have.Subnets):
			ops, err = m.takeSubnets(n, l, key, have.Subnets)
			return ops, "took over this node's flannel lease", err
		case have.FairleadNode == m.Node && !slices.Contains(own, have.Subnets[0]):
			return []store.Op{{Key: key, Expect: m.state.revision(key)}}, "deleted a flannel lease whose block this node no longer owns", nil
		case have.FairleadNode == m.Node:
			op, err := m.lease(l, key, have.Subnets...)
			if err != nil || !same(op.Value, have) {
				return []store.Op{op}, "updated this node's flannel lease", err
			}
		}
	}
	first := slices.IndexFunc(own, func(p netip.Prefix) bool { return p.Addr().Is4() })
	if first < 0 {
		ops, err = m.firstPair(n, l)
		return ops, "claimed the first block with a flannel lease", err
	}
	for _, b := range own {
		if b.Addr().Is4() && m.state.snap.LeasedBy(b) == nil {
			op, err := m.lease(l, "", m.pair(n, own, b)...)
			return []store.Op{op}, "wrote a flannel lease for a block of this node", err
		}
	}
	return nil, "", nil
}

// same reports whether a value equals a lease.
func same(value []byte, have *cluster.FlannelLease) bool {
	now, err := have.Value()
	return err == nil && string(now) == string(value)
}

// pair returns an IPv4 block with an IPv6 block that has no lease yet.
func (m *Manager) pair(n *cluster.Network, own []netip.Prefix, block netip.Prefix) []netip.Prefix {
	for _, p := range own {
		if p.Addr().Is6() && m.state.snap.LeasedBy(p) == nil && m.fits(n, []netip.Prefix{p}) {
			return []netip.Prefix{block, p}
		}
	}
	return []netip.Prefix{block}
}

// fits reports whether flannel's subnets are valid blocks of a network.
func (m *Manager) fits(n *cluster.Network, list []netip.Prefix) bool {
	return !slices.ContainsFunc(list, func(p netip.Prefix) bool { return subnetOf(n, p) == nil })
}

// subnetOf returns the subnet that a block belongs to, or nil.
func subnetOf(n *cluster.Network, p netip.Prefix) *cluster.Subnet {
	for i, s := range n.Subnets {
		if s.UsedByDefault() && s.CIDR.Contains(p.Addr()) && s.BlockBits() == p.Bits() {
			return &n.Subnets[i]
		}
	}
	return nil
}

// takeSubnets returns the changes that assign subnets to this node in both stores of record.
func (m *Manager) takeSubnets(n *cluster.Network, l *cluster.FlannelLease, key string, subnets []netip.Prefix) (ops []store.Op, err error) {
	for _, p := range subnets {
		block := cluster.BlockKey(n.Name, p)
		if b := m.state.snap.Blocks[block]; b != nil && b.Node != m.Node {
			return nil, fmt.Errorf("flannel's lease %s belongs to this node, but %s belongs to node %s: release one of them", key, block, b.Node)
		} else if b != nil {
			continue
		}
		value, err := m.blockDocument(subnetOf(n, p).CIDR)
		if err != nil {
			return nil, err
		}
		ops = append(ops, store.Op{Key: block, Value: value, Expect: m.state.revision(block)})
	}
	op, err := m.lease(l, key, subnets...)
	return append(ops, m.networkUnchanged(n.Name), op), err // syncFlannelLeases logs the last key
}

// firstPair returns the changes that claim one block of each family.
func (m *Manager) firstPair(n *cluster.Network, l *cluster.FlannelLease) ([]store.Op, error) {
	var subnets []netip.Prefix
	for _, six := range []bool{false, true} {
		own := m.flannelCandidates(n, six)
		for _, s := range n.Subnets {
			if s.CIDR.Addr().Is6() != six || !s.UsedByDefault() || six && len(subnets) == 0 {
				continue
			}
			if len(own) > 0 {
				subnets = append(subnets, own[0])
				break
			}
			p, err := m.freeBlock(n.Name, s)
			if err != nil {
				return nil, fmt.Errorf("claim a block of %s: %w", s.CIDR, err)
			}
			subnets = append(subnets, p)
			break
		}
	}
	if len(subnets) == 0 {
		return nil, nil // flannel's keys do not support networks without IPv4
	}
	return m.takeSubnets(n, l, (&cluster.FlannelLease{Subnets: subnets}).Key(), subnets)
}

// removeOrphanedLeases deletes leases that our agents wrote for removed nodes, once their blocks are free.
func (m *Manager) removeOrphanedLeases(ctx context.Context) error {
	m.mu.Lock()
	var ops []store.Op
	for key, l := range m.state.snap.Flannel {
		if l.FairleadNode != "" && m.state.snap.Nodes[l.FairleadNode] == nil && m.state.snap.Blocks[cluster.BlockKey(cluster.DefaultNetwork, l.Subnets[0])] == nil {
			ops = append(ops, store.Op{Key: key, Expect: m.state.revision(key)})
		}
	}
	m.mu.Unlock()
	for part := range slices.Chunk(ops, store.MaxOps) {
		if err := m.commit(ctx, part); err != nil && !isConflict(err) {
			return fmt.Errorf("delete flannel leases of removed nodes: %w", err)
		}
	}
	return nil
}
