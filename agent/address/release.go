package address

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/store"
)

// readJournal makes the releases so that plugins wrote down.
func (m *Manager) readJournal(ctx context.Context) error {
	m.mu.Lock()
	ready := m.ready
	m.mu.Unlock()
	if !ready {
		return nil // no claim is answered either
	}
	m.replay.Lock()
	defer m.replay.Unlock()
	return m.Dir.Replay(ctx, func(list []local.Release) error { return m.Release(ctx, list...) })
}

// Release frees what containers of this node have, which may be nothing.
func (m *Manager) Release(ctx context.Context, list ...local.Release) error {
	for part := range slices.Chunk(list, store.MaxOps/4) {
		if err := m.releaseSome(ctx, part); err != nil {
			return fmt.Errorf("release the addresses of %d containers: %w", len(part), err)
		}
	}
	return nil
}

func (m *Manager) releaseSome(ctx context.Context, list []local.Release) error {
	for range attempts {
		ops, err := m.releasing(list)
		if err != nil || len(ops) == 0 {
			return err
		}
		for part := range slices.Chunk(ops, store.MaxOps) {
			if err = m.commit(ctx, part); err != nil {
				break
			}
		}
		if !isConflict(err) {
			return err
		}
	}
	return errors.New("others changed them again and again")
}

// releasing are the changes that free what these containers have here.
func (m *Manager) releasing(list []local.Release) (ops []store.Op, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	seen := map[string]bool{}
	for _, r := range list {
		for key := range m.view.owners[holder{r.Network, r.Container, r.IfName}] {
			a := m.view.snap.Addresses[key]
			if a.Node != m.Node || seen[key] {
				continue
			}
			seen[key] = true
			op, err := m.freed(key, a)
			if err != nil {
				return nil, err
			}
			ops = append(ops, op)
		}
	}
	return ops, nil
}
