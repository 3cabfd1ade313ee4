package agent

import (
	"context"
	"slices"
	"sync"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/source"
)

// follow delivers the store's content to the agent's parts. With the Kubernetes API as the store, each prefix is a watch on
// the API server. So the agent follows blocks and addresses only once a network assigns them: a network of podCIDRs needs
// none.
func (a *Agent) follow(ctx context.Context) {
	always := []string{cluster.NetworksPrefix, cluster.NodesPrefix}
	all := cluster.Followed()
	if a.o.Config.Flannel.Prefix != "" {
		all = append(all, cluster.FlannelPrefix)
	}
	if a.o.Config.Store.Kubernetes.Kubeconfig != "" {
		few, stop := context.WithCancel(ctx)
		need := &needsBlocks{found: stop}
		_ = source.Follow(few, a.o.Store, always, need, a.storeCache, a.manager, a.status)
		stop()
	}
	_ = source.Follow(ctx, a.o.Store, all, a.storeCache, a.manager, a.status)
}

// needsBlocks is a follower that calls found once a network assigns blocks or single addresses.
type needsBlocks struct {
	found func()
	once  sync.Once
}

func (n *needsBlocks) look(list []source.Entry) {
	for _, e := range list {
		if network, ok := e.Document.(*cluster.Network); ok && slices.ContainsFunc(network.Subnets, func(s cluster.Subnet) bool { return s.Assign != cluster.AssignPodCIDR }) {
			n.once.Do(n.found)
		}
	}
}

// Reset implements source.Follower.
func (n *needsBlocks) Reset(list []source.Entry, _ int64) { n.look(list) }

// Change implements source.Follower.
func (n *needsBlocks) Change(b source.Batch) { n.look(b.Entries) }

// Away implements source.Follower.
func (*needsBlocks) Away(error) {}

// Back implements source.Follower.
func (*needsBlocks) Back() {}
