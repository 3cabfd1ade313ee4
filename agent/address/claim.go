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

// claim is a request on its way: several are answered by one transaction.
type claim struct {
	local.ClaimArgs
	ctx   context.Context
	ips   []netip.Addr
	ops   []store.Op
	tries int
	done  chan error

	// A pod's first fixed address is given only after a look at the store itself: what
	// is known may be a moment old, and another node may give it one now.
	makes bool // the plan gives a fixed address that the pod did not have
	slot  *store.Op
}

// errExhausted is a set of ranges of which every address has an owner.
var errExhausted = errors.New("no IP addresses available") // a constant; nothing assigns it

// Claim gives a container the addresses that it wants, all or none. One that has
// them already has them again.
func (m *Manager) Claim(ctx context.Context, args local.ClaimArgs) ([]netip.Addr, error) {
	if args.Container == "" || args.Network == "" || len(args.Wants) == 0 || len(args.Wants) >= store.MaxOps {
		return nil, fmt.Errorf("claim: want a network, a container, and 1 to %d addresses", store.MaxOps-1)
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
		return c.ips, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// serveClaims answers what has come together while the last transaction was under way.
func (m *Manager) serveClaims(ctx context.Context) {
	for {
		var batch []*claim
		select {
		case <-ctx.Done():
			return
		case c := <-m.claims:
			batch = append(batch, c)
		}
		// What was released before must be free, and stay free, when this is answered.
		if err := m.readJournal(ctx); err != nil {
			m.fail(batch, err)
			continue
		}
		for len(batch) > 0 {
			batch = m.transact(ctx, m.gather(batch))
		}
	}
}

// gather adds what waits, without waiting.
func (m *Manager) gather(batch []*claim) []*claim {
	for len(batch) < store.MaxOps {
		select {
		case c := <-m.claims:
			batch = append(batch, c)
		default:
			return batch
		}
	}
	return batch
}

func (m *Manager) fail(batch []*claim, err error) {
	for _, c := range batch {
		c.done <- err
	}
}

// transact makes one transaction of as many claims as fit, and returns those that
// are to be tried again.
func (m *Manager) transact(ctx context.Context, batch []*claim) (rest []*claim) {
	var some, unsure []*claim
	var ops []store.Op
	m.mu.Lock()
	taken := map[string]bool{} // keys of this transaction
	for _, c := range batch {
		if c.ctx.Err() != nil {
			c.done <- c.ctx.Err()
			continue
		}
		if len(ops)+len(c.Wants)+1 > store.MaxOps {
			rest = append(rest, c)
			continue
		}
		if err := m.plan(c, taken); err != nil {
			c.done <- err
			continue
		}
		if c.makes && c.slot == nil {
			unsure = append(unsure, c)
			continue
		}
		some, ops = append(some, c), append(ops, c.ops...)
	}
	m.mu.Unlock()
	rest = append(rest, m.makeSure(ctx, unsure)...)
	var err error
	if len(ops) > 0 {
		err = m.commit(ctx, ops)
	}
	for _, c := range some {
		c.tries++
		if isConflict(err) && c.tries < attempts {
			c.slot = nil
			rest = append(rest, c)
			continue
		}
		c.done <- err
	}
	return rest
}

// plan works out which addresses a claim gets, and the changes for it.
func (m *Manager) plan(c *claim, taken map[string]bool) error {
	if !m.ready {
		return m.notReady()
	}
	c.ips, c.ops, c.makes = nil, nil, false
	mine := map[string]bool{}
	for i, w := range c.Wants {
		if err := m.allowed(c, w); err != nil {
			return err
		}
		ip, err := m.choose(c, w, taken, mine)
		if err != nil {
			return fmt.Errorf("address %d of %d: %w", i+1, len(c.Wants), err)
		}
		key := cluster.AddressKey(c.Network, ip)
		mine[key] = true
		c.ips = append(c.ips, ip)
		value, err := json.Marshal(m.document(c, w, ip))
		if err != nil {
			return err
		}
		a := m.view.snap.Addresses[key]
		c.makes = c.makes || w.Fixed && a == nil
		if a == nil || *a != *m.document(c, w, ip) {
			c.ops = append(c.ops, store.Op{Key: key, Value: value, Was: m.view.was(key)})
		}
	}
	if c.makes && c.slot == nil {
		return nil // it is planned again
	}
	if c.makes {
		if taken[c.slot.Key] {
			return fmt.Errorf("another container of pod %s is given an address: %w", c.Pod, store.ErrConflict)
		}
		taken[c.slot.Key] = true
		c.ops = append(c.ops, *c.slot)
	}
	for key := range mine {
		taken[key] = true
	}
	return nil
}

// document is what the store is told.
func (m *Manager) document(c *claim, w local.Want, ip netip.Addr) *cluster.Address {
	owner := c.Pod
	if owner == "" {
		owner = c.Container + " " + c.IfName
	}
	return &cluster.Address{Network: c.Network, IP: ip, Owner: owner, Fixed: w.Fixed, Node: m.Node, Container: c.Container, IfName: c.IfName}
}

// allowed refuses what is not the cluster's to give.
func (m *Manager) allowed(c *claim, w local.Want) error {
	if w.Fixed && c.Pod == "" {
		return errors.New("a fixed address is a pod's, by its name: CNI_ARGS has no K8S_POD_NAMESPACE and K8S_POD_NAME")
	}
	if c.Foreign {
		return nil
	}
	n := m.view.snap.Networks[c.Network]
	if n == nil {
		return unknownNetwork(c.Network, m.view)
	}
	for _, r := range w.Ranges {
		if !slices.ContainsFunc(n.Subnets, func(s cluster.Subnet) bool {
			return s.Assign == cluster.AssignCluster && s.CIDR.Contains(r.First) && s.CIDR.Contains(r.Last)
		}) {
			return fmt.Errorf(`%s is in no subnet of network %s that has "assign": "cluster"`, r, c.Network)
		}
	}
	return nil
}

// choose finds an address: the one that the container has already, the one that is
// the pod's, the one that is asked for, or a free one.
func (m *Manager) choose(c *claim, w local.Want, taken, mine map[string]bool) (netip.Addr, error) {
	in := func(ip netip.Addr) bool {
		return slices.ContainsFunc(w.Ranges, func(r local.Span) bool { return r.Contains(ip) }) && (!w.IP.IsValid() || w.IP == ip)
	}
	have := m.view.owners[holder{c.Network, c.Container, c.IfName}]
	if w.Fixed {
		have = m.view.fixed[fixedOwner{c.Network, c.Pod, c.IfName}]
	}
	for key := range have {
		a := m.view.snap.Addresses[key]
		if in(a.IP) && !mine[key] && a.Fixed == w.Fixed {
			return a.IP, nil
		}
	}
	if w.IP.IsValid() {
		return w.IP, m.mayHave(c, w, in(w.IP), taken, mine)
	}
	// From a place on that is this node's own: nodes seldom want the same.
	start := place(m.Node, c.Network)
	for _, r := range w.Ranges {
		for ip := range spread(r, start) {
			key := cluster.AddressKey(c.Network, ip)
			if m.view.was(key) == 0 && !taken[key] && !mine[key] {
				return ip, nil
			}
		}
	}
	return netip.Addr{}, fmt.Errorf("%w in %v: every one has an owner", errExhausted, w.Ranges)
}

// mayHave tells whether a container may have the address that it asks for. A pod's
// name says that it is the same one, wherever it was; another's is taken only when
// its node is not there.
func (m *Manager) mayHave(c *claim, w local.Want, inside bool, taken, mine map[string]bool) error {
	key := cluster.AddressKey(c.Network, w.IP)
	a := m.view.snap.Addresses[key]
	switch {
	case !inside:
		return fmt.Errorf("%s is not in %v", w.IP, w.Ranges)
	case taken[key] || mine[key]:
		return fmt.Errorf("%s is being given to another", w.IP)
	case a == nil:
		return nil
	case c.Pod != "" && a.Owner == c.Pod && (a.IfName == c.IfName || a.IfName == ""):
		return nil
	case a.Fixed:
		return fmt.Errorf("%s is fixed for %s: see \"fairlead ipam show\"", w.IP, a.Owner)
	case a.Node == m.Node || m.view.snap.Nodes[a.Node] != nil:
		return fmt.Errorf("%s is %s's, on node %s", w.IP, a.Owner, a.Node)
	}
	return nil
}
