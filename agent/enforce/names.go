package enforce

import (
	"context"
	"net/netip"
	"slices"
	"sync"
)

// Names knows the owners of addresses, and follows the Kubernetes API, or this host's containers and the agents' store.
type Names struct{ e *Enforcer }

// FollowNames follows pods and nodes, or containers, until the context ends. The names are for an isolated network and
// its peers, or for the host's networks if network is "".
func FollowNames(ctx context.Context, o Options, network string, peers []string) *Names {
	e := newEnforcer(o, nil)
	if network != "" {
		e.network, e.compiler = network, e.compiler.ForNetwork(network, peers)
	}
	if o.Config != nil {
		e.kinds = slices.DeleteFunc(kinds(), func(k kind) bool { return k.resource != "pods" && k.resource != "nodes" })
	}
	if e.activate(); o.Store != nil {
		e.missing[storeContent] = true
		go e.followStore(ctx)
	}
	if o.Config != nil {
		e.synced(attachmentFiles) // the API has all names
	} else {
		go e.followAttachments(ctx)
	}
	e.follow(ctx, &sync.WaitGroup{}, func(err error) { o.Log.Error("the names of pods are not known", "error", err) })
	return &Names{e}
}

// Synced reports whether all pods and nodes are known.
func (n *Names) Synced() bool {
	n.e.mu.Lock()
	defer n.e.mu.Unlock()
	return len(n.e.missing) == 0
}

// SetPodAddresses sets the nodes' addresses in the default network, see PodAddressesOf.
func (n *Names) SetPodAddresses(all map[string][]netip.Addr) { n.e.SetPodAddresses(all) }

// Name returns the owner of an address: see policy.Compiler.
func (n *Names) Name(a netip.Addr) (pod, node string) {
	n.e.mu.Lock()
	defer n.e.mu.Unlock()
	return n.e.compiler.Name(a)
}
