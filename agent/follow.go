package agent

import (
	"context"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/source"
	"github.com/fairlead/fairlead/agent/store"
)

// follow delivers the store's content to the agent's parts. With the Kubernetes API as the store, each prefix is a
// watch on the API server. So the agent follows blocks and addresses only once a network assigns them, or this node has
// addresses of whereabouts: a network of podCIDRs needs none.
func (a *Agent) follow(ctx context.Context) {
	always := []string{cluster.NetworksPrefix, cluster.NodesPrefix}
	all := cluster.Followed()
	if a.o.Config.FlannelInEtcd() {
		all = append(all, cluster.FlannelPrefix)
	}
	if a.o.Config.Store.Kubernetes.Kubeconfig != "" && !a.manager.HasWhereabouts() {
		few, stop := context.WithCancel(ctx)
		go func() {
			select {
			case <-a.whereabouts:
				stop()
			case <-few.Done():
			}
		}()
		u := &untilBlocks{followers: []source.Follower{a.storeCache, a.manager, a.status}, found: stop}
		_ = source.Follow(few, a.o.Store, always, u)
		stop()
		u.end()
	}
	_ = source.Follow(ctx, a.o.Store, all, a.storeCache, a.manager, a.status)
}

// untilBlocks is a follower that passes on what it receives until a network assigns blocks or single addresses. It does not
// pass on that network: without their blocks, the nodes would lose their routes, and this node would claim another block.
type untilBlocks struct {
	followers []source.Follower
	found     func()
	ended     bool
	away      bool // passed on
}

// end passes on that the store is back. The next source.Follow does not know that it was away.
func (u *untilBlocks) end() {
	if u.away {
		for _, f := range u.followers {
			f.Reconnected()
		}
	}
}

// pass calls do for each follower, unless the list has a network that may assign blocks.
func (u *untilBlocks) pass(list []source.Entry, do func(source.Follower)) {
	if !u.ended && slices.ContainsFunc(list, mayAssignBlocks) {
		u.ended = true
		u.found()
	}
	if u.ended {
		return
	}
	for _, f := range u.followers {
		do(f)
	}
}

// mayAssignBlocks reports whether an entry is a network that assigns blocks or single addresses. An invalid network
// may: its last valid version stays in effect.
func mayAssignBlocks(e source.Entry) bool {
	n, ok := e.Document.(*cluster.Network)
	return ok && slices.ContainsFunc(n.Subnets, func(s cluster.Subnet) bool { return s.Assign != cluster.AssignPodCIDR }) ||
		e.Problem != nil && strings.HasPrefix(e.Key, cluster.NetworksPrefix)
}

// Reset implements source.Follower.
func (u *untilBlocks) Reset(list []source.Entry, revision int64) {
	u.pass(list, func(f source.Follower) { f.Reset(list, revision) })
}

// Change implements source.Follower.
func (u *untilBlocks) Change(b source.Batch) {
	u.pass(b.Entries, func(f source.Follower) { f.Change(b) })
}

// Disconnected implements source.Follower.
func (u *untilBlocks) Disconnected(err error) {
	u.pass(nil, func(f source.Follower) { f.Disconnected(err); u.away = true })
}

// Reconnected implements source.Follower.
func (u *untilBlocks) Reconnected() {
	u.pass(nil, func(f source.Follower) { f.Reconnected(); u.away = false })
}

// Restored implements store.RestoreFollower.
func (u *untilBlocks) Restored() {
	u.pass(nil, func(f source.Follower) {
		if r, ok := f.(store.RestoreFollower); ok {
			r.Restored()
		}
	})
}

var _ store.RestoreFollower = (*untilBlocks)(nil)
