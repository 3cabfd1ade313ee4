package address

import (
	"context"
	"slices"
)

// What a claim was given and nobody took is taken back: by whoever asked and went away,
// or was told nothing as the store did not answer. No DEL has to come for it.

// answer ends a claim.
func (m *Manager) answer(c *claim, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c.unknown = err != nil && !isConflict(err)
	if err == nil || c.unknown {
		for _, key := range c.keys {
			m.last[key] = c
		}
	}
	if c.unknown || err == nil && (c.gone || c.ctx.Err() != nil) {
		m.undo(c)
	}
	c.answered = err == nil
	c.done <- err
}

// abandon is that nobody waits for a claim any more.
func (m *Manager) abandon(c *claim) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c.gone = true
	if c.answered {
		m.undo(c)
	}
}

// delivered says whether who asked has the answer.
func (m *Manager) delivered(c *claim, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !ok {
		m.undo(c)
		return
	}
	m.forgetLast(c)
}

// undo has a next round take back what a claim got.
func (m *Manager) undo(c *claim) {
	m.undone[c] = true
	select {
	case m.unwanted <- struct{}{}:
	default:
	}
}

// freedAll is that a round is done.
func (m *Manager) freedAll(r *round) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.more {
		return // what is left comes in the next
	}
	for _, c := range r.undone {
		delete(m.undone, c)
		m.forgetLast(c)
	}
}

func (m *Manager) forgetLast(c *claim) {
	for _, key := range c.keys {
		if m.last[key] == c {
			delete(m.last, key)
		}
	}
}

// stillOf tells whether a key is as a claim left it: a later claim of the same
// container may have been told of the same address.
func (m *Manager) stillOf(key string, c *claim) bool {
	a := m.view.snap.Addresses[key]
	return a != nil && m.last[key] == c && a.Node == m.Node && a.Container == c.Container && a.IfName == c.IfName
}

// findOut reads what became of claims of which the store did not say whether they
// were done.
func (m *Manager) findOut(ctx context.Context) {
	m.mu.Lock()
	var list []*claim
	for c := range m.undone {
		if c.unknown && m.away == nil {
			list = append(list, c)
		}
	}
	m.mu.Unlock()
	for _, c := range list {
		if m.refresh(ctx, slices.Clone(c.gets)) != nil {
			return // the next round tries again
		}
		m.mu.Lock()
		c.unknown = false
		m.mu.Unlock()
	}
}
