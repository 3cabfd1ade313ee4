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

// leavingFor is how long a block is out of this node's file before it is let go: an
// ADD that read the file before has ended by then.
const leavingFor = 5 * time.Second

// letGo deletes the blocks of this node that an operator wants back, once nothing
// holds an address of them.
func (m *Manager) letGo(ctx context.Context) error {
	for _, b := range m.wantedBack() {
		held, err := m.holds(b.Network)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(held, func(a netip.Addr) bool { return b.CIDR.Contains(a) }) {
			continue
		}
		leaves, err := m.leaves(b.Network)
		if err != nil {
			return err
		}
		key := cluster.BlockKey(b.Network, b.CIDR)
		m.mu.Lock()
		was := m.view.was(key)
		m.mu.Unlock()
		if err := m.commit(ctx, []store.Op{{Key: key, Was: was}}); err != nil && !isConflict(err) {
			return fmt.Errorf("let go of %s: %w", key, err)
		}
		if leaves {
			m.mu.Lock()
			delete(m.joined, b.Network)
			m.mu.Unlock()
		}
		m.Log.Info("let go of a block that an operator wanted back", "key", key)
	}
	return nil
}

// leaves tells whether an operator wants all blocks back that this node has of an
// isolated network, or another beside the default one, and nothing here holds an
// address of it: then it gets no other until something asks for one, so that the
// network can be deleted.
func (m *Manager) leaves(network string) (bool, error) {
	m.mu.Lock()
	has := m.view.snap.BlocksOf(network, m.Node)
	stays := slices.ContainsFunc(has, func(b netip.Prefix) bool { return !m.view.snap.Blocks[cluster.BlockKey(network, b)].Release })
	m.mu.Unlock()
	if network == cluster.DefaultNetwork || len(has) == 0 || stays {
		return false, nil
	}
	held, err := m.holds(network)
	return err == nil && len(held) == 0, err
}

// wantedBack are those that have been out of the file for long enough.
func (m *Manager) wantedBack() (list []*cluster.Block) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, b := range m.view.snap.Blocks {
		since, seen := m.leaving[key]
		switch {
		case b.Node != m.Node || !b.Release:
			delete(m.leaving, key)
		case !seen:
			m.leaving[key] = time.Now()
		case time.Since(since) > leavingFor:
			list = append(list, b)
		}
	}
	return list
}
