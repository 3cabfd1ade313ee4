package address

import (
	"context"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/store"
)

// unusedVNIs are the VNIs that were reserved but not used at a time.
type unusedVNIs struct {
	at   time.Time
	keys map[string]int64 // with their revisions
}

// releaseUnusedVNIs releases VNIs that are unused for the grace period. In a store whose transactions are sequences, an
// agent that is killed while it assigns a VNI leaves such a reservation. Agents do not follow VNIs, so the first node
// of the cluster lists them once in each grace period.
func (m *Manager) releaseUnusedVNIs(ctx context.Context) error {
	m.mu.Lock()
	before := m.unusedVNIs
	rank, _ := m.rank()
	m.mu.Unlock()
	if rank != 0 || time.Since(before.at) < m.Grace {
		return nil
	}
	entries, _, err := m.Store.List(ctx, cluster.VNIsPrefix)
	if err != nil {
		return fmt.Errorf("list the reserved VNIs: %w", err)
	}
	m.mu.Lock()
	now := m.withoutNetwork(entries)
	m.unusedVNIs = unusedVNIs{time.Now(), now}
	m.mu.Unlock()
	var ops []store.Op
	for key, revision := range now {
		if before.keys[key] == revision {
			ops = append(ops, store.Op{Key: key, Expect: revision})
		}
	}
	return m.release(ctx, ops, "VNIs that no network uses")
}

// withoutNetwork returns the VNIs that their networks do not use. An invalid network may use its VNI again once it is
// valid.
func (m *Manager) withoutNetwork(entries []store.Entry) map[string]int64 {
	unused := map[string]int64{}
	for _, e := range entries {
		name := string(e.Value)
		n, invalid := m.state.snap.Networks[name], m.state.snap.Problems[cluster.NetworkKey(name)] != nil
		if !invalid && (n == nil || cluster.VNIKey(n.VNI) != e.Key) {
			unused[e.Key] = e.Revision
		}
	}
	return unused
}
