package address

import (
	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/store"
)

// planReleases adds what frees what these containers have here, and what was given and
// reached nobody.
func (m *Manager) planReleases(r *round, list []local.Release) error {
	for _, l := range list {
		for key := range m.view.owners[holder{l.Network, l.Container, l.IfName}] {
			if err := m.planFree(r, key); err != nil {
				return err
			}
		}
	}
	for c := range m.undone {
		if c.unknown {
			continue
		}
		r.undone = append(r.undone, c)
		for _, key := range c.gets {
			if !m.stillOf(key, c) {
				continue
			}
			if err := m.planFree(r, key); err != nil {
				return err
			}
		}
	}
	return nil
}

// planFree takes one address from its container.
func (m *Manager) planFree(r *round, key string) error {
	a := m.view.snap.Addresses[key]
	if a.Node != m.Node || r.taken[key] {
		return nil
	}
	if len(r.ops) >= store.MaxOps {
		r.more = true
		return nil
	}
	op, err := m.freed(key, a)
	if err != nil {
		return err
	}
	r.taken[key], r.frees[key] = true, true
	r.ops = append(r.ops, op)
	return nil
}
