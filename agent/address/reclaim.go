package address

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/ipam"
)

// reclaim releases what removed nodes had, and this node's addresses that no container holds. Every agent does this; a
// concurrent attempt only causes a conflict.
func (m *Manager) reclaim(ctx context.Context) error {
	m.mu.Lock()
	ready := m.notReady() == nil && m.away == nil
	m.restartGrace()
	m.mu.Unlock()
	if !ready {
		return nil
	}
	var errs []error
	for _, node := range m.longAbsent() {
		errs = append(errs, m.reclaimNode(ctx, node))
	}
	return errors.Join(append(errs, m.releaseFormerBlocks(ctx), m.releaseUnheld(ctx), m.releaseUnusedVNIs(ctx), m.removeOrphanedLeases(ctx))...)
}

// restartGrace restarts the grace periods if the agent has a new session: it may have been paused.
func (m *Manager) restartGrace() {
	if session, err := m.Session(); err == nil && session != m.session {
		m.session = session
		m.absent, m.unheld, m.leaving = map[string]time.Time{}, map[string]time.Time{}, map[string]time.Time{}
	}
}

// longAbsent returns the nodes that have blocks or addresses and have been missing for the grace period. A random extra
// time keeps agents from acting all at once.
func (m *Manager) longAbsent() (nodes []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	have := map[string]bool{}
	for _, b := range m.state.snap.Blocks {
		have[b.Node] = true
	}
	for _, a := range m.state.snap.Addresses {
		have[a.Node] = true
	}
	delete(have, "")
	delete(have, m.Node)
	for node := range have {
		since, seen := m.absent[node]
		switch {
		case m.state.snap.Nodes[node] != nil || m.state.snap.Problems[cluster.NodeKey(node)] != nil:
			delete(m.absent, node)
		case !seen:
			m.absent[node] = time.Now().Add(rand.N(m.Grace/8 + 1))
		case time.Since(since) > m.Grace:
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// nodeIsGone reports whether a node has neither a document nor a live agent, which would be about to publish one.
func nodeIsGone(ctx context.Context, s store.Store, node string) (bool, error) {
	for _, key := range []string{cluster.NodeKey(node), cluster.AliveKey(node)} {
		if _, err := s.Get(ctx, key); !errors.Is(err, os.ErrNotExist) {
			return false, err
		}
	}
	return true, nil
}

// reclaimNode checks the store again and then releases everything that a node had. An agent that runs but does not know
// its addresses yet has a session and is no node yet: its containers keep theirs.
func (m *Manager) reclaimNode(ctx context.Context, node string) error {
	gone, err := nodeIsGone(ctx, m.Store, node)
	if err != nil {
		return err
	}
	if !gone { // another grace period begins
		m.mu.Lock()
		delete(m.absent, node)
		m.mu.Unlock()
		return nil
	}
	ops, err := endpointOps(ctx, m.Store, node)
	if err != nil {
		return err
	}
	m.mu.Lock()
	more, err := m.releaseOps(node)
	m.mu.Unlock()
	if err != nil {
		return err
	}
	released := 0
	for _, op := range append(ops, more...) {
		// One key at a time: if the node comes back now, it keeps the rest. In Kubernetes, a transaction is a sequence,
		// and the admission policy fairlead-own-node does not let this agent undo the deletion of another node's block.
		err = m.commit(ctx, []store.Op{op, {Key: cluster.NodeKey(node), Verify: true}})
		if err != nil {
			break
		}
		released++
	}
	if released > 0 {
		m.Log.Info("released the blocks and addresses of a removed node", "node", node, "keys", released)
	}
	if err != nil && !isConflict(err) { // after a conflict, another agent did it, or the node is back
		return fmt.Errorf("release the blocks and addresses of removed node %s: %w", node, err)
	}
	return nil
}

// endpointOps returns the changes that delete what a removed node published about its containers. Commit them before the
// addresses are released: otherwise, network policy takes the next owner of an address for the former one.
func endpointOps(ctx context.Context, s store.Store, node string) (ops []store.Op, err error) {
	list, _, err := s.List(ctx, cluster.EndpointsPrefix+node+"/")
	for _, e := range list {
		if store.ValidKey(e.Key) {
			ops = append(ops, store.Op{Key: e.Key, Expect: e.Revision})
		}
	}
	return ops, err
}

// releaseOps returns the changes that release everything that a node has.
func (m *Manager) releaseOps(node string) (ops []store.Op, err error) {
	for key, b := range m.state.snap.Blocks {
		if b.Node == node {
			ops = append(ops, store.Op{Key: key, Expect: m.state.revision(key)})
		}
	}
	for key, a := range m.state.snap.Addresses {
		if a.Node != node {
			continue
		}
		op, err := m.releaseOp(key, a)
		if err != nil {
			return nil, err
		}
		ops = append(ops, op)
	}
	slices.SortFunc(ops, func(a, b store.Op) int { return compare(a.Key, b.Key) })
	return ops, nil
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// releaseOp returns the change that releases an address from its container. A fixed address stays with its owner.
func (m *Manager) releaseOp(key string, a *cluster.Address) (store.Op, error) {
	op := store.Op{Key: key, Expect: m.state.revision(key)}
	if !a.Fixed {
		return op, nil
	}
	kept := *a
	kept.Node, kept.Machine, kept.Container = "", "", ""
	var err error
	op.Value, err = json.Marshal(kept)
	return op, err
}

// unheldGrace is the time for which no container must hold an address of this node before it is released. An ADD claims
// the address in the store before it records it locally.
const unheldGrace = takeTime + time.Minute

// isOwn reports whether a block or an address of this node belongs to this machine.
func (m *Manager) isOwn(machine string) bool {
	return machine == "" || m.Machine == "" || machine == m.Machine
}

// releaseFormerBlocks releases the blocks of another machine that had this node's name. That machine may still run
// without a session, so its blocks get the grace period of a removed node.
func (m *Manager) releaseFormerBlocks(ctx context.Context) error {
	var ops []store.Op
	m.mu.Lock()
	for key, b := range m.state.snap.Blocks {
		if b.Node != m.Node || m.isOwn(b.Machine) {
			continue
		}
		since, seen := m.absent[key]
		switch {
		case !seen:
			m.absent[key] = time.Now()
		case time.Since(since) > m.Grace:
			ops = append(ops, store.Op{Key: key, Expect: m.state.revision(key)})
		}
	}
	m.mu.Unlock()
	return m.release(ctx, ops, "blocks of the machine that had this node's name before")
}

// release commits changes that release blocks or addresses. After a conflict, a later attempt releases the rest.
func (m *Manager) release(ctx context.Context, ops []store.Op, what string) error {
	for part := range slices.Chunk(ops, store.MaxOps) {
		err := m.commit(ctx, part)
		if isConflict(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("release %s: %w", what, err)
		}
		m.Log.Info("released "+what, "count", len(part))
	}
	return nil
}

// releaseUnheld releases addresses that the store assigns to this node but no container here holds. A kill or a crash
// of the machine causes this.
func (m *Manager) releaseUnheld(ctx context.Context) error {
	m.mu.Lock()
	var ours []*cluster.Address
	for _, a := range m.state.snap.Addresses {
		if a.Node == m.Node {
			ours = append(ours, a)
		}
	}
	maps.DeleteFunc(m.unheld, func(key string, _ time.Time) bool { // the address may get another container
		a := m.state.snap.Addresses[key]
		return a == nil || a.Node != m.Node
	})
	m.mu.Unlock()
	holds := map[string]map[string]bool{}
	var ops []store.Op
	for _, a := range ours {
		if holds[a.Network] == nil {
			holds[a.Network] = m.holdersOf(a.Network)
		}
		key := cluster.AddressKey(a.Network, a.IP)
		if holds[a.Network] == nil || holds[a.Network][a.IP.String()+" "+a.Container] {
			m.forgetUnheld(key)
			continue
		}
		if op, ok := m.longUnheld(key, a); ok {
			ops = append(ops, op)
		}
	}
	return m.release(ctx, ops, "addresses of this node that no container holds")
}

// holdersOf returns the held addresses with their containers, or nil if they cannot be read.
func (m *Manager) holdersOf(network string) map[string]bool {
	held, err := ipam.Allocations(m.Dir.Addresses(), network)
	if err != nil {
		return nil
	}
	out := map[string]bool{}
	for _, h := range held {
		out[h.Addr.String()+" "+h.Owner.ContainerID] = true
	}
	return out
}

func (m *Manager) forgetUnheld(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.unheld, key)
}

func (m *Manager) longUnheld(key string, a *cluster.Address) (op store.Op, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	since, seen := m.unheld[key]
	if !seen {
		m.unheld[key] = time.Now()
		return op, false
	}
	grace := min(unheldGrace, m.Grace)
	if !m.isOwn(a.Machine) {
		grace = m.Grace
	}
	if time.Since(since) < grace || m.state.snap.Addresses[key] != a || m.last[key] != nil {
		return op, false
	}
	delete(m.unheld, key)
	op, err := m.releaseOp(key, a)
	return op, err == nil
}
