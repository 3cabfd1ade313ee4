package enforce

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/policy"
	"github.com/fairlead/fairlead/agent/policy/stored"
	"github.com/fairlead/fairlead/agent/store"
)

// storeContent names the store's documents in errors of an ADD that waits for them.
const storeContent = "policies and containers in the store"

// storeFollower delivers what is in the agents' store to an Enforcer: policies, and the containers of other hosts. The
// containers of this host are in files, before they are in the store. If a document is invalid, its last valid form
// stays.
type storeFollower struct {
	e         *Enforcer
	documents map[string]stored.Document // by key
	invalid   map[string]string          // why policies cannot be read, by key
	endpoints stored.Endpoints
	changes   []func(*policy.Compiler) // that the compilers do not have yet
}

func newStoreFollower(e *Enforcer) *storeFollower {
	return &storeFollower{e, map[string]stored.Document{}, map[string]string{}, stored.Endpoints{}, nil}
}

// followStore delivers the store's content until the context ends.
func (e *Enforcer) followStore(ctx context.Context) {
	_ = store.FollowAll(ctx, e.o.Store, stored.Prefixes(), newStoreFollower(e)) // it ends with the context, or the store's
}

// Reset implements store.Follower.
func (f *storeFollower) Reset(list []store.Entry, _ int64) {
	gone := map[string]bool{}
	for key := range f.documents {
		gone[key] = true
	}
	for key := range f.invalid {
		gone[key] = true
	}
	for _, e := range list {
		delete(gone, e.Key)
		f.set(e)
	}
	for key := range gone {
		f.replace(key, stored.Document{})
	}
	f.flush()
	f.e.synced(storeContent)
}

// Change implements store.Follower.
func (f *storeFollower) Change(b store.Batch) {
	for _, ev := range b.Events {
		if ev.Deleted {
			f.replace(ev.Key, stored.Document{})
		} else {
			f.set(ev.Entry)
		}
	}
	f.flush()
}

// do adds a change for each network's compiler.
func (f *storeFollower) do(change func(*policy.Compiler)) { f.changes = append(f.changes, change) }

// flush makes the changes.
func (f *storeFollower) flush() {
	f.e.setUnreadable(strings.Join(slices.Sorted(maps.Values(f.invalid)), "; "))
	list := f.changes
	f.changes = nil
	f.e.update(func(c *policy.Compiler) {
		for _, change := range list {
			change(c)
		}
	})
}

// Disconnected implements store.Follower. What is in force stays in force.
func (f *storeFollower) Disconnected(error) {}

// Reconnected implements store.Follower.
func (f *storeFollower) Reconnected() {}

func (f *storeFollower) set(e store.Entry) {
	d, err := stored.Decode(e.Key, e.Value)
	if err != nil {
		f.e.o.Log.Error("network policy does not use a document in the store", "error", err)
		if strings.HasPrefix(e.Key, cluster.PoliciesPrefix) {
			f.invalid[e.Key] = err.Error()
		}
		return
	}
	f.replace(e.Key, d)
}

// replace puts a document in the place of the last one of its key. An empty one deletes it.
func (f *storeFollower) replace(key string, now stored.Document) {
	delete(f.invalid, key)
	old := f.documents[key]
	if reflect.DeepEqual(old, now) {
		return
	}
	f.documents[key] = now
	if now == (stored.Document{}) {
		delete(f.documents, key)
	}
	switch {
	case now.Namespace != nil:
		f.do(func(c *policy.Compiler) { c.SetNamespace(now.Namespace.Name, now.Namespace.Labels) })
	case old.Namespace != nil: // its containers may remain
		name := old.Namespace.Name
		f.do(func(c *policy.Compiler) { c.SetNamespace(name, map[string]string{corev1.LabelMetadataName: name}) })
	case now.Policy != nil:
		f.do(func(c *policy.Compiler) { c.SetNetworkPolicy(now.Policy) })
	case old.Policy != nil:
		f.do(func(c *policy.Compiler) {
			c.DeletePolicy(policy.NetworkPolicyID(old.Policy.Namespace, old.Policy.Name))
		})
	case now.ClusterPolicy != nil:
		f.do(func(c *policy.Compiler) { c.SetClusterPolicy(now.ClusterPolicy) })
	case old.ClusterPolicy != nil:
		f.do(func(c *policy.Compiler) { c.DeletePolicy(policy.ClusterPolicyID(old.ClusterPolicy.Name)) })
	case now.Endpoint != nil || old.Endpoint != nil:
		f.attachment(old.Endpoint, false)
		f.attachment(now.Endpoint, true)
	case now.Node != nil && now.Node.Name != f.e.o.Node:
		f.do(func(c *policy.Compiler) { c.SetNode(stored.NodeOf(now.Node)) })
	case old.Node != nil && old.Node.Name != f.e.o.Node:
		f.do(func(c *policy.Compiler) { c.DeleteNode(old.Node.Name) })
	}
}

// attachment adds or removes an attachment of a container of another host.
func (f *storeFollower) attachment(a *cluster.Endpoint, add bool) {
	if a == nil || a.Node == f.e.o.Node {
		return
	}
	switch e, exists := f.endpoints.Set(a, add); {
	case exists:
		f.do(func(c *policy.Compiler) {
			c.AddNamespace(e.Namespace)
			c.SetEndpoint(e)
		})
	case e != nil:
		f.do(func(c *policy.Compiler) { c.DeleteEndpoint(e.Namespace, e.Name) })
	}
}
