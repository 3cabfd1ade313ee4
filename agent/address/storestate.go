package address

import (
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/source"
	"github.com/fairlead/fairlead/agent/store"
)

// storeState is the known content of the store: what the store sent, and what this agent wrote since.
type storeState struct {
	snap *cluster.Snapshot
	rev  map[string]int64 // revision of each key, including keys in gone
	gone map[string]bool  // keys that this agent deleted and the store has not reported yet

	owners map[holder]map[string]bool // keys of addresses, by holder
	fixed  map[fixedOwner]map[string]bool
}

// holder is a container's interface on a network.
type holder struct{ network, container, ifName string }

// fixedOwner is a pod's interface on a network, on any node.
type fixedOwner struct{ network, pod, ifName string }

func newStoreState() *storeState {
	return &storeState{cluster.NewSnapshot(), map[string]int64{}, map[string]bool{}, map[holder]map[string]bool{}, map[fixedOwner]map[string]bool{}}
}

// set stores an entry. It ignores one that is older than the known one.
func (v *storeState) set(e source.Entry) {
	if !cluster.IsFollowed(e.Key) || e.Revision < v.rev[e.Key] {
		return
	}
	v.unindex(e.Key)
	v.snap.Put(e.Key, e.Document, e.Problem)
	v.index(e.Key)
	v.rev[e.Key] = e.Revision
	delete(v.gone, e.Key)
	if e.Deleted {
		delete(v.rev, e.Key)
	}
}

// wrote applies what this agent committed.
func (v *storeState) wrote(ops []store.Op, committed int64) {
	for _, o := range ops {
		if o.Verify || !cluster.IsFollowed(o.Key) {
			continue
		}
		revision := committed
		if o.At != nil && *o.At != 0 {
			revision = *o.At
		}
		newer := v.rev[o.Key] > revision
		if o.Value != nil {
			v.set(source.Decode(store.Entry{Key: o.Key, Value: o.Value, Revision: revision}))
			continue
		}
		v.set(source.Gone(o.Key, revision))
		if !newer {
			v.rev[o.Key], v.gone[o.Key] = revision, true
		}
	}
}

// revision returns the revision to expect when changing a key; 0 if the key does not exist.
func (v *storeState) revision(key string) int64 {
	if v.gone[key] {
		return 0
	}
	return v.rev[key]
}

// reset replaces the content as of a revision. It keeps what this agent wrote after that revision.
func (v *storeState) reset(entries []source.Entry, revision int64) {
	there := map[string]bool{}
	for _, e := range entries {
		there[e.Key] = true
		v.set(e)
	}
	for key, r := range v.rev {
		if !there[key] && r <= revision {
			v.set(source.Gone(key, revision))
		}
	}
}

func (v *storeState) index(key string) {
	if a := v.snap.Addresses[key]; a != nil {
		put(v.owners, holder{a.Network, a.Container, a.IfName}, key)
		if a.Fixed {
			put(v.fixed, fixedOwner{a.Network, a.Owner, a.IfName}, key)
		}
	}
}

func (v *storeState) unindex(key string) {
	if a := v.snap.Addresses[key]; a != nil {
		drop(v.owners, holder{a.Network, a.Container, a.IfName}, key)
		drop(v.fixed, fixedOwner{a.Network, a.Owner, a.IfName}, key)
	}
}

func put[K comparable](m map[K]map[string]bool, k K, key string) {
	if m[k] == nil {
		m[k] = map[string]bool{}
	}
	m[k][key] = true
}

func drop[K comparable](m map[K]map[string]bool, k K, key string) {
	delete(m[k], key)
	if len(m[k]) == 0 {
		delete(m, k)
	}
}
