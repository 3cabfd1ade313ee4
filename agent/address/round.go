package address

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/store"
)

// A round is one transaction: releases from plugins, addresses that reached nobody, and as many claims as fit. Rounds
// run one after another, so a DEL sees what an earlier ADD received.

// serveClaims answers the claims that arrived during the previous round.
func (m *Manager) serveClaims(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case c := <-m.claims:
			_ = m.serve(ctx, m.gather([]*claim{c})) // each claim receives its error
		case <-m.unwanted:
			_ = m.serve(ctx, nil) // readJournal retries after a failure
		}
	}
}

// gather adds the claims that are waiting now.
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

// readJournal processes the releases that plugins recorded. While the store is away they wait: each attempt would send
// it a request.
func (m *Manager) readJournal(ctx context.Context) error {
	m.mu.Lock()
	ready := m.notReady() == nil && m.away == nil
	m.mu.Unlock()
	if !ready {
		return nil
	}
	return m.serve(ctx, nil)
}

// serve answers claims. It reads the journal after the claims arrived and empties it before they are answered, so
// addresses released before a claim are free for it.
func (m *Manager) serve(ctx context.Context, batch []*claim) error {
	m.turn.Lock()
	defer m.turn.Unlock()
	list, err := m.begin(ctx)
	if err != nil {
		fail(batch, err)
		return err
	}
	return m.rounds(ctx, batch, list, m.Dir.ClearTaken)
}

// begin returns the pending releases.
func (m *Manager) begin(ctx context.Context) ([]local.Release, error) {
	if err := m.isReady(); err != nil {
		return nil, err
	}
	list, err := m.Dir.TakeReleases(ctx)
	if err == nil {
		m.resolveUnknown(ctx)
	}
	return list, err
}

// rounds commits transactions until all releases are done and each claim has an answer. It calls after once the
// releases are committed.
func (m *Manager) rounds(ctx context.Context, batch []*claim, list []local.Release, after func() error) error {
	for conflicts := 0; ; {
		r := m.plan(batch, list)
		err := r.err
		if err == nil && len(r.ops) > 0 {
			err = m.commit(ctx, append(r.ops, r.checks...))
		}
		batch = append(r.later, m.confirmSlots(ctx, r.unconfirmed)...)
		if isConflict(err) && conflicts < attempts {
			conflicts++
			batch = append(batch, retry(r.claims)...)
			continue
		}
		if len(r.claims) > 1 && isRefusal(ctx, err) {
			return m.alone(ctx, append(batch, retry(r.claims)...), list, after)
		}
		if err == nil {
			m.finishRound(r)
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

// isRefusal reports whether the store wrote nothing because it refuses a change, and would refuse it again.
func isRefusal(ctx context.Context, err error) bool {
	return err != nil && !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrUnavailable) && ctx.Err() == nil
}

// alone commits the releases and each claim in transactions of their own, so that a claim that the store refuses fails
// no other.
func (m *Manager) alone(ctx context.Context, batch []*claim, list []local.Release, after func() error) error {
	if err := m.rounds(ctx, nil, list, after); err != nil {
		fail(batch, err)
		return err
	}
	var errs []error
	for _, c := range batch {
		errs = append(errs, m.rounds(ctx, []*claim{c}, nil, nil))
	}
	return errors.Join(errs...)
}

// retry prepares claims for another plan after a conflict.
func retry(list []*claim) []*claim {
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

// round is the content of one transaction.
type round struct {
	ops         []store.Op
	checks      []store.Op      // of the networks whose addresses it assigns
	frees       map[string]bool // keys that it releases
	taken       map[string]bool // keys that it changes
	unclaimed   []*claim        // unclaimed claims that it releases
	more        bool            // some releases did not fit
	err         error           // of planning the releases
	claims      []*claim        // claims that it answers
	later       []*claim        // claims that did not fit
	unconfirmed []*claim        // claims that need a read from the store first

	rank, nodes uint64 // this node's position among the cluster's nodes, and their number
}

// maxNetworks limits the networks in one round, and so its checks.
const maxNetworks = 4

func newRound() *round { return &round{frees: map[string]bool{}, taken: map[string]bool{}} }

// plan computes the next round.
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
		if r.more || len(r.ops)+len(c.Wants)+1 > store.MaxOps || len(r.checks) == maxNetworks {
			r.later = append(r.later, c)
			continue
		}
		err := m.planClaim(c, r)
		switch {
		case len(r.frees) > 0 && (errors.Is(err, errLater) || errors.Is(err, errExhausted)):
			r.later = append(r.later, c)
		case err != nil:
			c.done <- err
		case c.newFixed && c.slot == nil:
			r.unconfirmed = append(r.unconfirmed, c)
		default:
			r.claims, r.ops = append(r.claims, c), append(r.ops, c.ops...)
			if check := m.networkUnchanged(c.Network); !c.Whereabouts && !slices.ContainsFunc(r.checks, func(o store.Op) bool { return o.Key == check.Key }) {
				r.checks = append(r.checks, check)
			}
		}
	}
	return r
}

// planClaim chooses a claim's addresses and the changes for them.
func (m *Manager) planClaim(c *claim, r *round) error {
	c.ips, c.keys, c.gained, c.ops, c.newFixed = nil, nil, nil, nil, false
	mine := map[string]bool{}
	for i, w := range c.Wants {
		if err := m.checkAllowed(c, w); err != nil {
			return err
		}
		ip, err := m.choose(c, w, r, mine)
		if err != nil {
			return fmt.Errorf("address %d of %d: %w", i+1, len(c.Wants), err)
		}
		key := cluster.AddressKey(c.Network, ip)
		mine[key] = true
		c.ips, c.keys = append(c.ips, ip), append(c.keys, key)
		a, now := m.state.snap.Addresses[key], m.document(c, w, ip)
		c.newFixed = c.newFixed || w.Fixed && a == nil
		if a == nil || a.Node != m.Node || a.Container != c.Container {
			c.gained = append(c.gained, key)
		}
		if a == nil || *a != *now {
			value, err := json.Marshal(now)
			if err != nil {
				return err
			}
			c.ops = append(c.ops, store.Op{Key: key, Value: value, Expect: m.state.revision(key)})
		} else if !r.taken[key] { // the known state may have what a transaction wrote and undid
			c.ops = append(c.ops, store.Op{Key: key, Verify: true, Expect: m.state.revision(key)})
		}
	}
	if c.newFixed && c.slot == nil {
		return nil // planned again after confirmSlots
	}
	if c.newFixed {
		if r.taken[c.slot.Key] {
			return fmt.Errorf("another container of pod %s is getting an address: %w", c.Pod, store.ErrConflict)
		}
		r.taken[c.slot.Key] = true
		op, err := m.slotOp(c)
		if err != nil {
			return err
		}
		c.ops = slices.Insert(c.ops, 0, op) // first: where a transaction is a sequence, a part of it must not lack the slot
	}
	for key := range mine {
		r.taken[key] = true
	}
	return nil
}
