package address

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/store"
)

// writeFiles writes what plugins read, for every network that this node has a part in,
// or had: what it was then, or was before somebody deleted and made it anew, must not count.
func (m *Manager) writeFiles() error {
	m.files.Lock()
	defer m.files.Unlock()
	before, err := m.Dir.Networks()
	if err != nil {
		return err
	}
	m.mu.Lock()
	var list []*local.Network
	for name, n := range m.view.snap.Networks {
		if m.takesPart(name) || slices.Contains(before, name) {
			if name == cluster.DefaultNetwork {
				m.lend(n)
			}
			list = append(list, m.localNetwork(name, n))
		}
	}
	m.mu.Unlock()
	var errs []error
	for _, n := range list {
		n.MTU = m.MTU(n.Name)
		errs = append(errs, m.Dir.Write(n))
		before = slices.DeleteFunc(before, func(name string) bool { return name == n.Name })
	}
	return errors.Join(append(errs, m.forget(before), m.writeSubnetFile())...)
}

// forget removes the files of networks that the cluster has no more, but for those of
// which something here holds an address: the store may have been set back.
func (m *Manager) forget(names []string) error {
	var errs []error
	for _, name := range names {
		held, err := m.holds(name)
		if err == nil && len(held) == 0 {
			err = m.Dir.Remove(name)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (m *Manager) localNetwork(name string, n *cluster.Network) *local.Network {
	out := &local.Network{Name: name, Node: m.Node, NAT: n.NAT}
	for _, s := range n.Subnets {
		out.Subnets = append(out.Subnets, m.localSubnet(name, s))
		out.Routes = append(out.Routes, s.CIDR)
	}
	for _, p := range n.Peers {
		if m.view.snap.Mutual(name, p) {
			for _, s := range m.view.snap.Networks[p].Subnets {
				out.Routes = append(out.Routes, s.CIDR)
			}
		}
	}
	return out
}

func (m *Manager) localSubnet(network string, s cluster.Subnet) local.Subnet {
	out := local.Subnet{Name: s.Name, CIDR: s.CIDR, Assign: s.Assign, Exclude: s.Exclude}
	for _, b := range m.view.snap.BlocksOf(network, m.Node) {
		switch {
		case !s.CIDR.Contains(b.Addr()) || out.Cluster() || m.view.snap.Blocks[cluster.BlockKey(network, b)].Release:
		case m.isLent(network, b):
			out.Lent = append(out.Lent, b)
		default:
			out.Blocks = append(out.Blocks, b)
		}
	}
	return out
}

// keepHeld looks for blocks that this node's file has and the store does not give it:
// while it was away, it was removed and its blocks taken back. What is held in one
// that nobody has is claimed again; another node's is not touched, and said.
func (m *Manager) keepHeld(ctx context.Context) error {
	names, err := m.Dir.Networks()
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		n, err := m.Dir.Read(name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		held, err := m.holds(name)
		errs = append(errs, err)
		for _, s := range n.Subnets {
			for _, b := range slices.Concat(s.Blocks, s.Lent) {
				errs = append(errs, m.keepBlock(ctx, name, s, b, held))
			}
		}
	}
	return errors.Join(errs...)
}

func (m *Manager) keepBlock(ctx context.Context, network string, s local.Subnet, block netip.Prefix, held []netip.Addr) error {
	key := cluster.BlockKey(network, block)
	m.mu.Lock()
	now, problem := m.view.snap.Blocks[key], "keep "+key
	m.mu.Unlock()
	n := len(slices.DeleteFunc(slices.Clone(held), func(a netip.Addr) bool { return !block.Contains(a) }))
	switch {
	case now != nil && now.Node == m.Node || n == 0:
		m.complain(problem, nil)
		return nil
	case now != nil:
		m.complain(problem, fmt.Errorf("it is node %s's now, and %d addresses of it are held by containers here: they must be attached anew", now.Node, n))
		return nil
	}
	value, err := json.Marshal(cluster.Block{Node: m.Node, Subnet: s.CIDR})
	if err != nil {
		return err
	}
	err = m.commit(ctx, []store.Op{{Key: key, Value: value}})
	if isConflict(err) {
		return nil // the next look says whose it is
	}
	if err != nil {
		return fmt.Errorf("claim block %s again, of which containers here hold %d addresses: %w", block, n, err)
	}
	m.Log.Warn("claimed a block again that was taken back while containers here held addresses of it", "key", key, "addresses", n)
	return nil
}
