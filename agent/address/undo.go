package address

import (
	"context"
	"slices"
)

// If a claim's addresses reach nobody, a later round releases them without a DEL. That happens when the caller has
// gone, or the store did not report the outcome.

// answer finishes a claim.
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
		m.takeBack(c)
	}
	c.answered = err == nil
	c.done <- err
}

// cancelClaim cancels a claim whose caller has gone.
func (m *Manager) cancelClaim(c *claim) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c.gone = true
	if c.answered {
		m.takeBack(c)
	}
}

// delivered records whether the caller received the answer.
func (m *Manager) delivered(c *claim, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !ok {
		m.takeBack(c)
		return
	}
	m.forgetLast(c)
}

// takeBack makes a later round release a claim's addresses.
func (m *Manager) takeBack(c *claim) {
	m.unclaimed[c] = true
	select {
	case m.unwanted <- struct{}{}:
	default:
	}
}

// finishRound forgets the unclaimed claims that a committed round released.
func (m *Manager) finishRound(r *round) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.more {
		return // the next round releases the rest
	}
	for _, c := range r.unclaimed {
		delete(m.unclaimed, c)
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

// unchangedSince reports whether a key is unchanged since a claim. A later claim of the same container may have
// received the same address.
func (m *Manager) unchangedSince(key string, c *claim) bool {
	a := m.state.snap.Addresses[key]
	return a != nil && m.last[key] == c && a.Node == m.Node && a.Container == c.Container && a.IfName == c.IfName
}

// resolveUnknown reads the addresses of claims whose commit had no known outcome.
func (m *Manager) resolveUnknown(ctx context.Context) {
	m.mu.Lock()
	var list []*claim
	for c := range m.unclaimed {
		if c.unknown && m.away == nil {
			list = append(list, c)
		}
	}
	m.mu.Unlock()
	for _, c := range list {
		if m.refresh(ctx, slices.Clone(c.gained)) != nil {
			return // the next round retries
		}
		m.mu.Lock()
		c.unknown = false
		m.mu.Unlock()
	}
}
