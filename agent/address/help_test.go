package address

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/agent/address/local"
)

// Need claims one more block of a subnet for this node.
func (m *Manager) Need(ctx context.Context, network string, subnet netip.Prefix) error {
	m.blocks.Lock()
	defer m.blocks.Unlock()
	return m.need(ctx, network, subnet)
}

// Release frees what containers of this node have, which may be nothing.
func (m *Manager) Release(ctx context.Context, list ...local.Release) error {
	m.turn.Lock()
	defer m.turn.Unlock()
	if err := m.rounds(ctx, nil, list, func() error { return nil }); err != nil {
		return fmt.Errorf("release the addresses of %d containers: %w", len(list), err)
	}
	return nil
}

// Claim gives a container the addresses that it wants, all or none. One that has
// them already has them again.
func (m *Manager) Claim(ctx context.Context, args local.ClaimArgs) ([]netip.Addr, error) {
	c, err := m.claim(ctx, args)
	if err != nil {
		return nil, err
	}
	m.delivered(c, true)
	return c.ips, nil
}
