package address

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/store"
)

// Beside flannel every block of IPv4 that this node has of the default network is a
// lease in flannel's keys, too. Both are written in one transaction that wants
// neither to be there, so no node of flannel's and of ours have the same.

// errFlannelSix: a lease of flannel's names one subnet of each family, by its IPv4's.
var errFlannelSix = fmt.Errorf("flannel's keys cannot tell of another IPv6 block: %w", errNoBlock) // a constant; nothing assigns it

// beside is what leases of this node say; nil where there is no flannel.
func (m *Manager) beside(network string) (*cluster.FlannelLease, error) {
	if m.Flannel == nil || network != cluster.DefaultNetwork {
		return nil, nil
	}
	l := m.Flannel()
	if l == nil {
		return nil, fmt.Errorf("this node's address is not known yet: %w", store.ErrUnavailable)
	}
	return l, nil
}

// withLease adds to the claim of a block that of flannel's lease.
func (m *Manager) withLease(network string, op store.Op, blocks ...netip.Prefix) ([]store.Op, error) {
	l, err := m.beside(network)
	if l == nil || err != nil {
		return []store.Op{op}, err
	}
	if err := m.joinedCluster(); err != nil {
		return nil, err
	}
	if blocks[0].Addr().Is6() {
		return nil, errFlannelSix
	}
	write, err := m.lease(l, "", blocks...)
	return []store.Op{op, write}, err
}

// joinedCluster has leases wait for this node's own document: others would take the
// node for one that is removed.
func (m *Manager) joinedCluster() error {
	if m.view.snap.Nodes[m.Node] == nil {
		return fmt.Errorf("the store does not know this node yet: %w", store.ErrUnavailable)
	}
	return nil
}

// lease is the change that writes a lease of blocks; by the key that is there, if any.
func (m *Manager) lease(l *cluster.FlannelLease, key string, blocks ...netip.Prefix) (store.Op, error) {
	mine := *l
	mine.Subnets = blocks
	if key == "" {
		key = mine.Key()
	}
	value, err := mine.Value()
	return store.Op{Key: key, Value: value, Was: m.view.was(key)}, err
}

// leases makes flannel's keys and this node's blocks agree: it takes over what its own
// flanneld had, claims a first pair, and mends what is not as it should be.
func (m *Manager) leases(ctx context.Context) error {
	l, err := m.beside(cluster.DefaultNetwork)
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
			return fmt.Errorf("write flannel's key of this node: %w", err)
		}
	}
	return errors.New("write flannel's key of this node: others were faster: try again")
}

// leaseOps is the next transaction that is needed; none if all agree.
func (m *Manager) leaseOps(l *cluster.FlannelLease) (ops []store.Op, why string, err error) {
	n := m.view.snap.Networks[cluster.DefaultNetwork]
	if n == nil {
		return nil, "", nil
	}
	if err := m.joinedCluster(); err != nil {
		return nil, "", err
	}
	own := m.view.snap.BlocksOf(n.Name, m.Node)
	for _, key := range m.view.snap.Leases() {
		have := m.view.snap.Flannel[key]
		switch {
		case have.Ours == "" && have.PublicIP == l.PublicIP && m.fits(n, have.Subnets):
			ops, err = m.taken(n, l, key, have.Subnets)
			return ops, "took over the subnet that this node had of flannel", err
		case have.Ours == m.Node && !slices.Contains(own, have.Subnets[0]):
			return []store.Op{{Key: key, Was: m.view.was(key)}}, "took a lease of flannel's away whose block is not this node's any more", nil
		case have.Ours == m.Node:
			op, err := m.lease(l, key, have.Subnets...)
			if err != nil || !same(op.Value, have) {
				return []store.Op{op}, "wrote what this node is to flannel's nodes", err
			}
		}
	}
	first := slices.IndexFunc(own, func(p netip.Prefix) bool { return p.Addr().Is4() })
	if first < 0 {
		ops, err = m.firstPair(n, l)
		return ops, "claimed a subnet beside flannel", err
	}
	for _, b := range own {
		if b.Addr().Is4() && m.view.snap.LeasedBy(b) == nil {
			op, err := m.lease(l, "", m.pair(n, own, b)...)
			return []store.Op{op}, "told flannel's nodes of a block of this node", err
		}
	}
	return nil, "", nil
}

// same tells whether a value says what a lease says.
func same(value []byte, have *cluster.FlannelLease) bool {
	now, err := have.Value()
	return err == nil && string(now) == string(value)
}

// pair is a block, with the IPv6 block that no lease has yet.
func (m *Manager) pair(n *cluster.Network, own []netip.Prefix, block netip.Prefix) []netip.Prefix {
	for _, p := range own {
		if p.Addr().Is6() && m.view.snap.LeasedBy(p) == nil && m.fits(n, []netip.Prefix{p}) {
			return []netip.Prefix{block, p}
		}
	}
	return []netip.Prefix{block}
}

// fits tells whether flannel's subnets are blocks of a network.
func (m *Manager) fits(n *cluster.Network, list []netip.Prefix) bool {
	return !slices.ContainsFunc(list, func(p netip.Prefix) bool { return subnetOf(n, p) == nil })
}

// subnetOf is the subnet of which something is a block.
func subnetOf(n *cluster.Network, p netip.Prefix) *cluster.Subnet {
	for i, s := range n.Subnets {
		if s.InEveryChoice() && s.CIDR.Contains(p.Addr()) && s.BlockBits() == p.Bits() {
			return &n.Subnets[i]
		}
	}
	return nil
}

// taken are the changes that make subnets this node's in both.
func (m *Manager) taken(n *cluster.Network, l *cluster.FlannelLease, key string, subnets []netip.Prefix) (ops []store.Op, err error) {
	for _, p := range subnets {
		block := cluster.BlockKey(n.Name, p)
		if b := m.view.snap.Blocks[block]; b != nil && b.Node != m.Node {
			return nil, fmt.Errorf("flannel's key %s is this node's, and %s is node %s's: release one of both", key, block, b.Node)
		} else if b != nil {
			continue
		}
		value, err := json.Marshal(cluster.Block{Node: m.Node, Subnet: subnetOf(n, p).CIDR})
		if err != nil {
			return nil, err
		}
		ops = append(ops, store.Op{Key: block, Value: value, Was: m.view.was(block)})
	}
	op, err := m.lease(l, key, subnets...)
	return append(ops, op), err
}

// firstPair are the changes that claim a block of each family.
func (m *Manager) firstPair(n *cluster.Network, l *cluster.FlannelLease) ([]store.Op, error) {
	var subnets []netip.Prefix
	for _, six := range []bool{false, true} {
		own := m.lendable(n, six)
		for _, s := range n.Subnets {
			if s.CIDR.Addr().Is6() != six || !s.InEveryChoice() || six && len(subnets) == 0 {
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
		return nil, nil // a network without IPv4, which flannel's keys do not know
	}
	return m.taken(n, l, (&cluster.FlannelLease{Subnets: subnets}).Key(), subnets)
}

// orphans removes leases that our agents wrote for nodes that are removed, once their
// blocks are free.
func (m *Manager) orphans(ctx context.Context) error {
	m.mu.Lock()
	var ops []store.Op
	for key, l := range m.view.snap.Flannel {
		if l.Ours != "" && m.view.snap.Nodes[l.Ours] == nil && m.view.snap.Blocks[cluster.BlockKey(cluster.DefaultNetwork, l.Subnets[0])] == nil {
			ops = append(ops, store.Op{Key: key, Was: m.view.was(key)})
		}
	}
	m.mu.Unlock()
	for part := range slices.Chunk(ops, store.MaxOps) {
		if err := m.commit(ctx, part); err != nil && !isConflict(err) {
			return fmt.Errorf("take back flannel's keys of nodes that are gone: %w", err)
		}
	}
	return nil
}
