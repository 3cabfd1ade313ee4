package address

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/store"
)

// writeFiles writes the plugins' files for every network that this node uses or used. A file from before a network was
// deleted and created again must not stay in effect.
func (m *Manager) writeFiles() error {
	m.files.Lock()
	defer m.files.Unlock()
	if err := m.isReady(); err != nil {
		return err
	}
	before, err := m.Dir.Networks()
	if err != nil {
		return err
	}
	m.mu.Lock()
	var list []*local.Network
	for name, n := range m.state.snap.Networks {
		if m.takesPart(name) || slices.Contains(before, name) {
			if name == cluster.DefaultNetwork {
				m.chooseFlannelBlocks(n)
			}
			list = append(list, m.localNetwork(name, n))
		}
	}
	m.mu.Unlock()
	var errs []error
	for _, n := range list {
		n.MTU = m.mtu(n.Name)
		errs = append(errs, m.Dir.Write(n))
		before = slices.DeleteFunc(before, func(name string) bool { return name == n.Name })
	}
	return errors.Join(append(errs, m.forget(before), m.writeSubnetFile())...)
}

// mtu returns a network's MTU in bytes or, as long as the agent does not know it after a restart, the one in the file.
func (m *Manager) mtu(network string) int {
	mtu := m.MTU(network)
	if mtu != 0 {
		return mtu
	}
	if n, err := m.Dir.Read(network); err == nil {
		mtu = n.MTU
	}
	return mtu
}

// WriteMTU writes the networks' MTU into the existing files. Call it before containers can join a network, so that the
// first one does not get the kernel's default. It needs no session: it changes neither blocks nor addresses.
func (m *Manager) WriteMTU() error {
	m.files.Lock()
	defer m.files.Unlock()
	names, err := m.Dir.Networks()
	errs := []error{err}
	for _, name := range names {
		n, err := m.Dir.Read(name)
		if err != nil {
			continue // the next reconciliation writes it
		}
		if mtu := m.mtu(name); n.MTU != mtu {
			n.MTU = mtu
			errs = append(errs, m.Dir.Write(n))
		}
	}
	return errors.Join(errs...)
}

// forget removes the files of deleted networks. A network with held addresses keeps its file, because the store may
// have been restored from a backup.
func (m *Manager) forget(names []string) error {
	var errs []error
	for _, name := range names {
		held, err := m.allocatedAddrs(name)
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
		out.Subnets = append(out.Subnets, m.localSubnet(n, s))
		out.Routes = append(out.Routes, s.CIDR)
	}
	for _, p := range n.Peers {
		if m.state.snap.ArePeers(name, p) {
			for _, s := range m.state.snap.Networks[p].Subnets {
				out.Routes = append(out.Routes, s.CIDR)
			}
		}
	}
	return out
}

// localSubnet returns a subnet with this node's blocks of it. Blocks that all nodes ignore, for example after a change of
// the subnet's block length, give no addresses: nobody routes them, and another node's block may overlap.
func (m *Manager) localSubnet(n *cluster.Network, s cluster.Subnet) local.Subnet {
	out := local.Subnet{Name: s.Name, CIDR: s.CIDR, Assign: s.Assign, Exclude: s.Exclude}
	for _, b := range m.ownBlocks(n.Name) {
		claimed := m.state.snap.Blocks[cluster.BlockKey(n.Name, b)]
		switch {
		case !s.CIDR.Contains(b.Addr()) || n.CanBlock(claimed) != nil || out.Cluster() || claimed.Release:
		case m.isFlannelBlock(n.Name, b):
			out.Leased = append(out.Leased, b)
		default:
			out.Blocks = append(out.Blocks, b)
		}
	}
	return out
}

// reclaimLocalBlocks finds blocks that this node's file has but the store does not assign to it. This happens if the
// node was away, removed, and its blocks reclaimed. If containers hold addresses in a free block, the node claims it
// again. It reports a block that another node owns and does not touch it.
func (m *Manager) reclaimLocalBlocks(ctx context.Context) error {
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
		held, err := m.allocatedAddrs(name)
		errs = append(errs, err)
		for _, s := range n.Subnets {
			for _, b := range slices.Concat(s.Blocks, s.Leased) {
				errs = append(errs, m.keepBlock(ctx, name, s, b, held))
			}
		}
	}
	for _, l := range slices.Collect(maps.Values(m.lostBlocks)) {
		held, err := m.allocatedAddrs(l.network)
		if err == nil {
			err = m.keepBlock(ctx, l.network, l.subnet, l.block, held)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// lostBlock is a block that this node's file lacks, because it is not this node's any more, but of which containers
// here hold addresses.
type lostBlock struct {
	network string
	subnet  local.Subnet
	block   netip.Prefix
}

// stamp adds this machine's ID to a block that an older agent claimed.
func (m *Manager) stamp(ctx context.Context, key string, b cluster.Block) error {
	b.Machine = m.Machine
	value, err := json.Marshal(b)
	if err != nil {
		return err
	}
	m.mu.Lock()
	was := m.state.revision(key)
	m.mu.Unlock()
	if err := m.commit(ctx, []store.Op{{Key: key, Value: value, Expect: was}}); err != nil && !isConflict(err) {
		return fmt.Errorf("add this machine's ID to %s: %w", key, err)
	}
	return nil
}

// takeOver claims a block that this machine had under another name of its node, and whose addresses containers here use. It
// returns false if it cannot, as when a node with that name is alive.
func (m *Manager) takeOver(ctx context.Context, block store.Op, s local.Subnet, former string) bool {
	var err error
	if block.Value, err = m.blockDocument(s.CIDR); err == nil {
		err = m.commit(ctx, []store.Op{block, {Key: cluster.AliveKey(former), Verify: true}})
	}
	if err != nil {
		m.Log.Warn("cannot take over a block from the former name of this node", "key", block.Key, "former", former, "err", err)
		return false
	}
	m.Log.Warn("took over a block from the former name of this node", "key", block.Key, "former", former)
	return true
}

func (m *Manager) keepBlock(ctx context.Context, network string, s local.Subnet, block netip.Prefix, held []netip.Addr) error {
	key := cluster.BlockKey(network, block)
	m.mu.Lock()
	now, in, was := m.state.snap.Blocks[key], m.state.snap.Networks[network], m.state.revision(key)
	renamed := now != nil && now.Node != m.Node && now.Machine != "" && now.Machine == m.Machine
	m.mu.Unlock()
	report := func(err error) {
		if delete(m.lostBlocks, key); err != nil {
			m.lostBlocks[key] = lostBlock{network, s, block}
		}
		m.recordProblem("keep "+key, err)
	}
	n := len(slices.DeleteFunc(slices.Clone(held), func(a netip.Addr) bool { return !block.Contains(a) }))
	switch {
	case now != nil && now.Node == m.Node && now.Machine == "" && m.Machine != "" && !now.OfNode:
		return m.stamp(ctx, key, *now)
	case now != nil && now.Node == m.Node && m.isOwn(now.Machine) || n == 0:
		report(nil)
		return nil
	case renamed && m.takeOver(ctx, store.Op{Key: key, Expect: was}, s, now.Node):
		report(nil)
		return nil
	case now != nil:
		report(fmt.Errorf("it belongs to node %s now, but containers here hold %d of its addresses: attach them again", now.Node, n))
		return nil
	}
	if s.Assign == cluster.AssignPodCIDR {
		report(fmt.Errorf("it is not in this Node's podCIDRs any more, but containers here hold %d of its addresses: attach them again", n))
		return nil
	}
	if in != nil {
		// Other nodes ignore such a block, and one of them may have a block that overlaps it.
		if err := in.CanBlock(&cluster.Block{Network: in.Name, CIDR: block}); err != nil {
			report(fmt.Errorf("%w, but containers here hold %d of its addresses: attach them again", err, n))
			return nil
		}
	}
	value, err := m.blockDocument(s.CIDR)
	if err != nil {
		return err
	}
	err = m.commit(ctx, []store.Op{{Key: key, Value: value}})
	if isConflict(err) {
		return nil // the next reconciliation reports the owner
	}
	if err != nil {
		return fmt.Errorf("claim block %s again, in which containers here hold %d addresses: %w", block, n, err)
	}
	m.Log.Warn("claimed a block again, because containers here hold addresses in it", "key", key, "addresses", n)
	return nil
}
