package address

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/store"
)

// A round is what one transaction changes: what plugins gave back, what was given and
// reached nobody, and as many claims as fit. Rounds follow one another: a DEL that is
// read in one finds what the ADD before it got in an earlier one.

// serveClaims answers what has come together while the last round was under way.
func (m *Manager) serveClaims(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case c := <-m.claims:
			_ = m.serve(ctx, m.gather([]*claim{c})) // each claim is told
		case <-m.unwanted:
			_ = m.serve(ctx, nil) // what failed is tried again with the journal
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

// readJournal makes the releases that plugins wrote down.
func (m *Manager) readJournal(ctx context.Context) error {
	if m.isReady() != nil {
		return nil // no claim is answered either
	}
	return m.serve(ctx, nil)
}

// serve answers claims. What was released before they came is free, and stays free,
// when they are answered: the journal is read after them, and forgotten before.
func (m *Manager) serve(ctx context.Context, batch []*claim) error {
	m.turn.Lock()
	defer m.turn.Unlock()
	list, err := m.begin(ctx)
	if err != nil {
		fail(batch, err)
		return err
	}
	return m.rounds(ctx, batch, list, m.Dir.Forget)
}

// begin is what has been given back.
func (m *Manager) begin(ctx context.Context) ([]local.Release, error) {
	if err := m.isReady(); err != nil {
		return nil, err
	}
	list, err := m.Dir.Taken(ctx)
	if err == nil {
		m.findOut(ctx)
	}
	return list, err
}

// rounds makes transactions until all is released, of which after is told, and each
// claim has its answer.
func (m *Manager) rounds(ctx context.Context, batch []*claim, list []local.Release, after func() error) error {
	for conflicts := 0; ; {
		r := m.plan(batch, list)
		err := r.err
		if err == nil && len(r.ops) > 0 {
			err = m.commit(ctx, r.ops)
		}
		batch = append(r.later, m.makeSure(ctx, r.unsure)...)
		if isConflict(err) && conflicts < attempts {
			conflicts++
			batch = append(batch, anew(r.claims)...)
			continue
		}
		if err == nil {
			m.freedAll(r)
		}
		if err == nil && !r.more && len(list) > 0 {
			list, err = nil, after()
		}
		for _, c := range r.claims {
			m.answer(c, err)
		}
		if err != nil {
			fail(batch, err)
			return err
		}
		if len(batch) == 0 && len(list) == 0 {
			return nil
		}
	}
}

// anew are claims that are planned again: somebody was faster.
func anew(list []*claim) []*claim {
	for _, c := range list {
		c.slot = nil
	}
	return list
}

func fail(batch []*claim, err error) {
	for _, c := range batch {
		c.done <- err
	}
}

// round is what one transaction changes.
type round struct {
	ops    []store.Op
	frees  map[string]bool // keys that it takes from somebody
	taken  map[string]bool // keys that it changes
	undone []*claim        // whose addresses are among these
	more   bool            // not all releases fit
	err    error           // of these
	claims []*claim        // that it answers
	later  []*claim        // that did not fit
	unsure []*claim        // of which the store has to be asked something before

	rank, nodes uint64 // this node's place among the cluster's
}

func newRound() *round { return &round{frees: map[string]bool{}, taken: map[string]bool{}} }

// plan works out the next round.
func (m *Manager) plan(batch []*claim, list []local.Release) *round {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := newRound()
	if r.err = m.planReleases(r, list); r.err != nil {
		r.later = batch
		return r
	}
	if len(batch) > 0 {
		r.rank, r.nodes = m.rank()
	}
	for _, c := range batch {
		if c.ctx.Err() != nil {
			c.done <- c.ctx.Err()
			continue
		}
		if r.more || len(r.ops)+len(c.Wants)+1 > store.MaxOps {
			r.later = append(r.later, c)
			continue
		}
		err := m.planClaim(c, r)
		switch {
		case len(r.frees) > 0 && (errors.Is(err, errLater) || errors.Is(err, errExhausted)):
			r.later = append(r.later, c)
		case err != nil:
			c.done <- err
		case c.makes && c.slot == nil:
			r.unsure = append(r.unsure, c)
		default:
			r.claims, r.ops = append(r.claims, c), append(r.ops, c.ops...)
		}
	}
	return r
}

// planClaim works out which addresses a claim gets, and the changes for it.
func (m *Manager) planClaim(c *claim, r *round) error {
	c.ips, c.keys, c.gets, c.ops, c.makes = nil, nil, nil, nil, false
	mine := map[string]bool{}
	for i, w := range c.Wants {
		if err := m.allowed(c, w); err != nil {
			return err
		}
		ip, err := m.choose(c, w, r, mine)
		if err != nil {
			return fmt.Errorf("address %d of %d: %w", i+1, len(c.Wants), err)
		}
		key := cluster.AddressKey(c.Network, ip)
		mine[key] = true
		c.ips, c.keys = append(c.ips, ip), append(c.keys, key)
		a, now := m.view.snap.Addresses[key], m.document(c, w, ip)
		c.makes = c.makes || w.Fixed && a == nil
		if a == nil || a.Node != m.Node || a.Container != c.Container {
			c.gets = append(c.gets, key)
		}
		if a == nil || *a != *now {
			value, err := json.Marshal(now)
			if err != nil {
				return err
			}
			c.ops = append(c.ops, store.Op{Key: key, Value: value, Was: m.view.was(key)})
		}
	}
	if c.makes && c.slot == nil {
		return nil // it is planned again
	}
	if c.makes {
		if r.taken[c.slot.Key] {
			return fmt.Errorf("another container of pod %s is given an address: %w", c.Pod, store.ErrConflict)
		}
		r.taken[c.slot.Key] = true
		c.ops = append(c.ops, *c.slot)
	}
	for key := range mine {
		r.taken[key] = true
	}
	return nil
}
