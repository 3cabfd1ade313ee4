package address

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/store"
)

// claim is a pending request. One transaction can answer several.
type claim struct {
	local.ClaimArgs
	ctx    context.Context
	ips    []netip.Addr
	keys   []string // of ips
	gained []string // the keys that the container did not have before
	ops    []store.Op
	done   chan error

	// Before a pod gets its first fixed address, the store itself is read: the known state may be outdated, and another
	// node may be assigning one now.
	newFixed bool // the plan assigns a fixed address that the pod did not have
	slot     *store.Op

	// Guarded by the manager's mutex:
	answered bool // the claim has its addresses
	gone     bool // the caller no longer waits
	unknown  bool // the outcome of the commit is unknown
}

// claim assigns a container all the addresses that it wants, or none. A repeated claim returns the same addresses.
// After success the caller must call delivered.
func (m *Manager) claim(ctx context.Context, args local.ClaimArgs) (*claim, error) {
	if err := checkClaim(args); err != nil {
		return nil, err
	}
	if args.Whereabouts && m.Whereabouts != nil {
		m.Whereabouts()
	}
	c := &claim{ClaimArgs: args, ctx: ctx, done: make(chan error, 1)}
	select {
	case m.claims <- c:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case err := <-c.done:
		if err != nil {
			return nil, fmt.Errorf("addresses of network %s for container %s %s: %w", args.Network, args.Container, args.IfName, err)
		}
		return c, nil
	case <-ctx.Done():
		m.cancelClaim(c)
		return nil, ctx.Err()
	}
}

func checkClaim(args local.ClaimArgs) error {
	if args.Container == "" || args.Network == "" || len(args.Wants) == 0 || len(args.Wants) >= store.MaxOps {
		return fmt.Errorf("claim: want a network, a container, and 1 to %d addresses", store.MaxOps-1)
	}
	return nil
}

// preview returns what claim would assign now, without assigning it.
func (m *Manager) preview(args local.ClaimArgs) ([]netip.Addr, error) {
	if err := checkClaim(args); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.notReady(); err != nil {
		return nil, err
	}
	c, r := &claim{ClaimArgs: args}, newRound()
	r.rank, r.nodes = m.rank()
	if err := m.planClaim(c, r); err != nil {
		return nil, fmt.Errorf("addresses of network %s: %w", args.Network, err)
	}
	return c.ips, nil
}
