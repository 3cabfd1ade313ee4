package address

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/ipam"
)

// flannelDelay is the time between the removal of a block from flannel's subnet file and its release. An ADD of the
// flannel plugin reads that file without a lock; it ends within the time that a runtime gives it.
const flannelDelay = 5 * time.Minute

// releaseBlocks deletes the blocks that an administrator wants released, once no container holds an address in them.
func (m *Manager) releaseBlocks(ctx context.Context) error {
	for _, b := range m.releasableBlocks() {
		unused, err := m.isUnused(ctx, b)
		if err != nil {
			return err
		}
		if !unused {
			continue
		}
		leaves, err := m.leavesNetwork(b.Network)
		if err != nil {
			return err
		}
		key := cluster.BlockKey(b.Network, b.CIDR)
		m.mu.Lock()
		was := m.state.revision(key)
		m.mu.Unlock()
		err = m.commit(ctx, []store.Op{{Key: key, Expect: was}})
		if isConflict(err) {
			continue // a later attempt looks again
		}
		if err != nil {
			return fmt.Errorf("release %s: %w", key, err)
		}
		if leaves {
			m.mu.Lock()
			delete(m.joined, b.Network)
			m.mu.Unlock()
		}
		m.Log.Info("released a block at an administrator's request", "key", key)
	}
	return nil
}

// isUnused reports whether no container here holds an address of a block and none can get one. ADD reads this node's
// file and allocates with the same lock held.
func (m *Manager) isUnused(ctx context.Context, b *cluster.Block) (bool, error) {
	lock, err := ipam.Open(ctx, m.Dir.Addresses(), b.Network, ipam.Options{})
	if err != nil {
		return false, fmt.Errorf("release block %s: %w", b.CIDR, err)
	}
	defer lock.Close()
	n, err := m.Dir.Read(b.Network)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	if n == nil {
		n = &local.Network{}
	}
	for _, s := range n.Subnets {
		if slices.Contains(slices.Concat(s.Blocks, s.Leased), b.CIDR) {
			return false, nil // writing the file failed
		}
	}
	held, err := m.allocatedAddrs(b.Network)
	return err == nil && !slices.ContainsFunc(held, func(a netip.Addr) bool { return b.CIDR.Contains(a) }), err
}

// leavesNetwork reports whether this node stops using a network: an administrator released all its blocks of it, and no
// container here holds an address. The node then claims no block until a container asks for one, so that the network
// can be deleted. A node never leaves the default network.
func (m *Manager) leavesNetwork(network string) (bool, error) {
	m.mu.Lock()
	has := m.ownBlocks(network)
	stays := slices.ContainsFunc(has, func(b netip.Prefix) bool { return !m.state.snap.Blocks[cluster.BlockKey(network, b)].Release })
	m.mu.Unlock()
	if network == cluster.DefaultNetwork || len(has) == 0 || stays {
		return false, nil
	}
	held, err := m.allocatedAddrs(network)
	return err == nil && len(held) == 0, err
}

// releasableBlocks returns the blocks to release, after flannelDelay for blocks that the flannel plugin may use.
func (m *Manager) releasableBlocks() (list []*cluster.Block) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.restartGrace()
	for key, b := range m.state.snap.Blocks {
		since, seen := m.leaving[key]
		switch {
		case b.Node != m.Node || !b.Release:
			delete(m.leaving, key)
		case !seen && m.usesHostLocal(b.Network):
			m.leaving[key] = time.Now()
		case !m.usesHostLocal(b.Network) || time.Since(since) > flannelDelay:
			list = append(list, b)
		}
	}
	return list
}
