package address

import (
	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/store"
)

// planReleases adds the changes that release the given attachments' addresses and the addresses of unclaimed claims.
func (m *Manager) planReleases(r *round, list []local.Release) error {
	for _, l := range list {
		for key := range m.state.owners[holder{l.Network, l.Container, l.IfName}] {
			if err := m.planFree(r, key); err != nil {
				return err
			}
		}
	}
	for c := range m.unclaimed {
		if c.unknown {
			continue
		}
		r.unclaimed = append(r.unclaimed, c)
		for _, key := range c.gained {
			if !m.unchangedSince(key, c) {
				continue
			}
			if err := m.planFree(r, key); err != nil {
				return err
			}
		}
	}
	return nil
}

// planFree adds the change that releases one address.
func (m *Manager) planFree(r *round, key string) error {
	a := m.state.snap.Addresses[key]
	if a.Node != m.Node || r.taken[key] {
		return nil
	}
	if len(r.ops) >= store.MaxOps {
		r.more = true
		return nil
	}
	op, err := m.releaseOp(key, a)
	if err != nil {
		return err
	}
	r.taken[key], r.frees[key] = true, true
	r.ops = append(r.ops, op)
	return nil
}
