package address

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/store"
)

// releaseDelay is the time between the removal of a block from this node's file and its release. An ADD that read the
// old file ends within it.
const releaseDelay = 5 * time.Second

// releaseBlocks deletes the blocks that an administrator wants released, once no container holds an address in them.
func (m *Manager) releaseBlocks(ctx context.Context) error {
	for _, b := range m.releasableBlocks() {
		held, err := m.allocatedAddrs(b.Network)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(held, func(a netip.Addr) bool { return b.CIDR.Contains(a) }) {
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
		if err := m.commit(ctx, []store.Op{{Key: key, Expect: was}}); err != nil && !isConflict(err) {
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

// leavesNetwork reports whether this node stops using a network: an administrator released all its blocks of it, and no
// container here holds an address. The node then claims no block until a container asks for one, so that the network
// can be deleted. A node never leaves the default network.
func (m *Manager) leavesNetwork(network string) (bool, error) {
	m.mu.Lock()
	has := m.state.snap.BlocksOf(network, m.Node)
	stays := slices.ContainsFunc(has, func(b netip.Prefix) bool { return !m.state.snap.Blocks[cluster.BlockKey(network, b)].Release })
	m.mu.Unlock()
	if network == cluster.DefaultNetwork || len(has) == 0 || stays {
		return false, nil
	}
	held, err := m.allocatedAddrs(network)
	return err == nil && len(held) == 0, err
}

// releasableBlocks returns the blocks whose releaseDelay is over.
func (m *Manager) releasableBlocks() (list []*cluster.Block) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, b := range m.state.snap.Blocks {
		since, seen := m.leaving[key]
		switch {
		case b.Node != m.Node || !b.Release:
			delete(m.leaving, key)
		case !seen:
			m.leaving[key] = time.Now()
		case time.Since(since) > releaseDelay:
			list = append(list, b)
		}
	}
	return list
}
