package address

import (
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/store"
)

// view is what is known of the store: what it told, and what this agent wrote since.
type view struct {
	snap *cluster.Snapshot
	rev  map[string]int64 // of each key; of one that this agent deleted, too, until the store tells so
	gone map[string]bool  // these

	owners map[holder]map[string]bool // keys of addresses
	fixed  map[fixedOwner]map[string]bool
}

// holder is an interface of a container on a network.
type holder struct{ network, container, ifName string }

// fixedOwner is an interface of a pod on a network, wherever it is.
type fixedOwner struct{ network, pod, ifName string }

func newView() *view {
	return &view{cluster.NewSnapshot(), map[string]int64{}, map[string]bool{}, map[holder]map[string]bool{}, map[fixedOwner]map[string]bool{}}
}

// set takes a key as of a revision, nil for one that was deleted. What is older than
// what is known is known better.
func (v *view) set(key string, value []byte, revision int64) {
	if !cluster.IsFollowed(key) || revision < v.rev[key] {
		return
	}
	v.unindex(key)
	v.snap.Set(key, value)
	v.index(key)
	v.rev[key] = revision
	delete(v.gone, key)
	if value == nil {
		delete(v.rev, key)
	}
}

// wrote takes what this agent committed.
func (v *view) wrote(ops []store.Op, revision int64) {
	for _, o := range ops {
		if o.Verify || !cluster.IsFollowed(o.Key) {
			continue
		}
		newer := v.rev[o.Key] > revision
		v.set(o.Key, o.Value, revision)
		if o.Value == nil && !newer {
			v.rev[o.Key], v.gone[o.Key] = revision, true
		}
	}
}

// was is the revision at which a key is to be changed; 0: it is not there.
func (v *view) was(key string) int64 {
	if v.gone[key] {
		return 0
	}
	return v.rev[key]
}

// reset takes everything as of a revision. What this agent wrote after it stays.
func (v *view) reset(entries []store.Entry, revision int64) {
	there := map[string]bool{}
	for _, e := range entries {
		there[e.Key] = true
		v.set(e.Key, e.Value, e.Revision)
	}
	for key, r := range v.rev {
		if !there[key] && r <= revision {
			v.set(key, nil, revision)
		}
	}
}

func (v *view) index(key string) {
	if a := v.snap.Addresses[key]; a != nil {
		put(v.owners, holder{a.Network, a.Container, a.IfName}, key)
		if a.Fixed {
			put(v.fixed, fixedOwner{a.Network, a.Owner, a.IfName}, key)
		}
	}
}

func (v *view) unindex(key string) {
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
