package address

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/agent/address/local"
)

// Need claims another block of a subnet for this node.
func (m *Manager) Need(ctx context.Context, network string, subnet netip.Prefix) error {
	m.blocks.Lock()
	defer m.blocks.Unlock()
	return m.need(ctx, network, subnet)
}

// Release releases the addresses of this node's containers. There may be none.
func (m *Manager) Release(ctx context.Context, list ...local.Release) error {
	m.turn.Lock()
	defer m.turn.Unlock()
	if err := m.rounds(ctx, nil, list, func() error { return nil }); err != nil {
		return fmt.Errorf("release the addresses of %d containers: %w", len(list), err)
	}
	return nil
}

// Claim assigns a container all the addresses that it wants, or none. A repeated call returns the same addresses.
func (m *Manager) Claim(ctx context.Context, args local.ClaimArgs) ([]netip.Addr, error) {
	c, err := m.claim(ctx, args)
	if err != nil {
		return nil, err
	}
	m.delivered(c, true)
	return c.ips, nil
}
