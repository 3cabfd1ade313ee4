package address

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/store"
)

// claim is a request on its way: several are answered by one transaction.
type claim struct {
	local.ClaimArgs
	ctx  context.Context
	ips  []netip.Addr
	keys []string // of these
	gets []string // of these, what the container did not have before
	ops  []store.Op
	done chan error

	// A pod's first fixed address is given only after a look at the store itself: what
	// is known may be a moment old, and another node may give it one now.
	makes bool // the plan gives a fixed address that the pod did not have
	slot  *store.Op

	// By the manager's lock:
	answered bool // it has its addresses
	gone     bool // whoever asked does not wait any more
	unknown  bool // the store did not say whether it was done
}

// claim gives a container the addresses that it wants, all or none. One that has them
// already has them again. When it succeeded, delivered has to be called.
func (m *Manager) claim(ctx context.Context, args local.ClaimArgs) (*claim, error) {
	if err := checkClaim(args); err != nil {
		return nil, err
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
		m.abandon(c)
		return nil, ctx.Err()
	}
}

func checkClaim(args local.ClaimArgs) error {
	if args.Container == "" || args.Network == "" || len(args.Wants) == 0 || len(args.Wants) >= store.MaxOps {
		return fmt.Errorf("claim: want a network, a container, and 1 to %d addresses", store.MaxOps-1)
	}
	return nil
}

// foresee is what claim would give now, as far as is known here; nothing is taken.
func (m *Manager) foresee(args local.ClaimArgs) ([]netip.Addr, error) {
	if err := checkClaim(args); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.ready {
		return nil, m.notReady()
	}
	c, r := &claim{ClaimArgs: args}, newRound()
	r.rank, r.nodes = m.rank()
	if err := m.planClaim(c, r); err != nil {
		return nil, fmt.Errorf("addresses of network %s: %w", args.Network, err)
	}
	return c.ips, nil
}
