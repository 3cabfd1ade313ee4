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
// with an agent lists them once in each grace period. An agent that was paused may know a former state of the network,
// so each release verifies the network.
func (m *Manager) releaseUnusedVNIs(ctx context.Context) error {
	m.mu.Lock()
	before := m.unusedVNIs
	first := m.isFirstAgent()
	m.mu.Unlock()
	if !first || time.Since(before.at) < m.Grace {
		return nil
	}
	entries, _, err := m.Store.List(ctx, cluster.VNIsPrefix)
	if err != nil {
		return fmt.Errorf("list the reserved VNIs: %w", err)
	}
	now := unusedVNIs{time.Now(), map[string]int64{}}
	var releases [][]store.Op
	m.mu.Lock()
	for _, e := range entries {
		network := string(e.Value)
		if m.usesVNI(network, e.Key) {
			continue
		}
		now.keys[e.Key] = e.Revision
		if before.keys[e.Key] == e.Revision {
			ops := []store.Op{{Key: e.Key, Expect: e.Revision}}
			if cluster.ValidName(network) {
				ops = append(ops, m.networkUnchanged(network))
			}
			releases = append(releases, ops)
		}
	}
	m.unusedVNIs = now
	m.mu.Unlock()
	for _, ops := range releases {
		switch err := m.commit(ctx, ops); {
		case isConflict(err): // the network has changed
		case err != nil:
			return fmt.Errorf("release a VNI that no network uses: %w", err)
		default:
			m.Log.Info("released a VNI that no network uses", "key", ops[0].Key)
		}
	}
	return nil
}

// isFirstAgent reports whether no node with an agent precedes this one. A Node without an agent, such as a flannel
// node, has no ID.
func (m *Manager) isFirstAgent() bool {
	for name, n := range m.state.snap.Nodes {
		if name < m.Node && n.ID != "" {
			return false
		}
	}
	return true
}

// usesVNI reports whether a network uses a VNI. An invalid network may use its VNI again once it is valid.
func (m *Manager) usesVNI(network, key string) bool {
	n, invalid := m.state.snap.Networks[network], m.state.snap.Problems[cluster.NetworkKey(network)] != nil
	return invalid || n != nil && cluster.VNIKey(n.VNI) == key
}
