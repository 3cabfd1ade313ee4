// Package source delivers a cluster's desired state as typed documents. It decodes each document once for all parts of
// the agent. The documents come from a store: etcd, a file, or the Kubernetes API.
package source

import (
	"context"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/store"
)

// Entry is a key with its document.
type Entry struct {
	Key      string
	Revision int64            // of the last write to this key; of the deletion if Deleted
	Document cluster.Document // nil if Deleted or invalid, or if the key has no type
	Problem  error            // why the document is invalid
	Deleted  bool
}

// Batch contains the changes of one or several whole transactions.
type Batch struct {
	Entries  []Entry
	Revision int64 // of the store after the changes
}

// Follower is a store.Follower for documents.
type Follower interface {
	// Reset replaces everything received before with the content as of a revision.
	Reset(entries []Entry, revision int64)
	// Change delivers changes since the last call.
	Change(b Batch)
	// Disconnected says that the store cannot be reached, and why. It is called for each failed attempt, because the reason
	// may change. What was received stays valid as the last known state.
	Disconnected(err error)
	// Reconnected says that the store answers again. Missed changes follow.
	Reconnected()
}

// Follow is store.FollowAll for documents. The followers receive the same documents, one follower after another. They
// must not modify them.
func Follow(ctx context.Context, s store.Store, prefixes []string, list ...Follower) error {
	return store.FollowAll(ctx, s, prefixes, followers(list))
}

// Decode decodes an entry.
func Decode(e store.Entry) Entry {
	d, err := cluster.Decode(e.Key, e.Value)
	return Entry{Key: e.Key, Revision: e.Revision, Document: d, Problem: err}
}

// Gone is the entry of a key that was deleted at a revision.
func Gone(key string, revision int64) Entry {
	return Entry{Key: key, Revision: revision, Deleted: true}
}

// DecodeAll decodes a list.
func DecodeAll(list []store.Entry) []Entry {
	out := make([]Entry, len(list))
	for i, e := range list {
		out[i] = Decode(e)
	}
	return out
}

// followers decodes for several followers.
type followers []Follower

func (l followers) Reset(entries []store.Entry, revision int64) {
	list := DecodeAll(entries)
	for _, f := range l {
		f.Reset(list, revision)
	}
}

func (l followers) Change(b store.Batch) {
	out := Batch{Revision: b.Revision}
	for _, e := range b.Events {
		if e.Deleted {
			out.Entries = append(out.Entries, Gone(e.Key, b.Revision))
		} else {
			out.Entries = append(out.Entries, Decode(e.Entry))
		}
	}
	for _, f := range l {
		f.Change(out)
	}
}

// Restored implements store.RestoreFollower.
func (l followers) Restored() {
	for _, f := range l {
		if r, ok := f.(store.RestoreFollower); ok {
			r.Restored()
		}
	}
}

func (l followers) Disconnected(err error) {
	for _, f := range l {
		f.Disconnected(err)
	}
}

func (l followers) Reconnected() {
	for _, f := range l {
		f.Reconnected()
	}
}
