package address

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/store"
)

// confirmSlots reads the pods' current addresses from the store and returns the claims to plan again. A concurrent
// allocation for the same pod bumps the slot's revision, so the commit below fails.
func (m *Manager) confirmSlots(ctx context.Context, list []*claim) (again []*claim) {
	for _, c := range list {
		if err := m.confirmSlot(ctx, c); err != nil {
			c.done <- err
			continue
		}
		again = append(again, c)
	}
	return again
}

func (m *Manager) confirmSlot(ctx context.Context, c *claim) error {
	key := cluster.FixedKey(c.Network, c.Pod, c.IfName)
	e, err := m.Store.Get(ctx, key)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("read the addresses of pod %s: %w", c.Pod, err)
	}
	entries, _, err := m.Store.List(ctx, cluster.AddressesPrefix+c.Network+"/")
	if err != nil {
		return fmt.Errorf("read the addresses of pod %s: %w", c.Pod, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range entries {
		m.state.set(e.Key, e.Value, e.Revision)
	}
	c.slot = &store.Op{Key: key, Value: []byte(m.Node), Expect: e.Revision}
	return nil
}
