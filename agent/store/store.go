// Package store holds a cluster's desired state: keys with small values, in a file on one host or in etcd.
//
// Every write is a compare-and-swap: it names the revision at which the writer last saw each key. A transaction writes
// several keys, all or none.
package store

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Entry is a key with its value. Keys are paths without slashes at the ends, such as "nodes/a". They do not include the
// store's prefix.
type Entry struct {
	Key      string
	Value    []byte
	Revision int64 // of the last write to this key; never 0
}

// Op is one change of a transaction.
type Op struct {
	Key    string
	Value  []byte // nil deletes the key
	Expect int64  // the key's revision as last seen; 0: the key must not exist
	Verify bool   // change nothing, only check that the key is at Expect

	// At receives the revision of this change if Commit writes one key after another. Each key then has its own
	// revision, and other nodes may write between two changes. nil: the caller does not need it.
	At *int64

	// Below changes nothing. It checks that no key with the prefix Key ("blocks/blue/") was written after the store's
	// revision Expect. Deleted keys do not count.
	Below bool
}

// isCheck reports whether an operation changes nothing.
func (o Op) isCheck() bool { return o.Verify || o.Below }

// ErrConflict means that a key was not at the expected revision and that nothing was written. Read the key again before
// retrying. The error is a *ConflictError.
var ErrConflict = errors.New("it was changed concurrently")

// ErrUnavailable means that the store cannot be reached or has no quorum. The call may have taken effect.
var ErrUnavailable = errors.New("the store is not available")

// ErrCompacted means that a watch's revision was compacted: list again.
var ErrCompacted = errors.New("the store has compacted this revision")

// ErrRestored means that the watched store was restored to an older state, for example from a backup. It wraps
// ErrCompacted.
var ErrRestored = fmt.Errorf("the store was restored from an older backup: %w", ErrCompacted)

// Event is a change that a watch reports.
type Event struct {
	Entry
	Deleted bool
}

// Batch contains the changes of one or several whole transactions.
type Batch struct {
	Events   []Event
	Revision int64 // of the store after the changes
}

// Held is a key that Hold created. Somebody else may delete it meanwhile: to be sure, verify its revision in each Commit.
type Held struct {
	Revision int64           // of the key
	Lost     <-chan struct{} // closed if the key expired, for example because the store was unreachable for longer than ttl
	release  func()
}

// NewHeld returns a held key, for stores in other packages.
func NewHeld(revision int64, lost <-chan struct{}, release func()) *Held {
	return &Held{Revision: revision, Lost: lost, release: release}
}

// Release deletes the key, unless another holder has it by now, and waits until that was tried.
func (h *Held) Release() { h.release() }

// Store is safe for concurrent use. If the store cannot be reached, errors are ErrUnavailable. A call returns when its
// context ends.
type Store interface {
	// Get reads a key. The error is os.ErrNotExist if the key does not exist.
	Get(ctx context.Context, key string) (Entry, error)

	// List reads all keys with a prefix ("nodes/"), sorted, as of one revision of the store. It reads large lists in
	// pages.
	List(ctx context.Context, prefix string) (entries []Entry, revision int64, err error)

	// Commit runs a transaction of at most MaxOps operations. It returns the store's revision after it, or ErrConflict.
	// Expect is checked for deleted keys, too.
	Commit(ctx context.Context, ops ...Op) (revision int64, err error)

	// Watch calls f in order for each batch after a revision. It returns the error of f, of the watch or of the
	// context.
	Watch(ctx context.Context, prefix string, after int64, f func(Batch) error) error

	// Hold creates a key and keeps it until the context ends or Release is called. The key disappears at most ttl after
	// the process died. If another holder has the key, the error is ErrConflict. Hold returns once it holds the key.
	Hold(ctx context.Context, key string, value []byte, ttl time.Duration) (*Held, error)

	// Close releases all held keys.
	Close() error
}

// KeepsEndpoints reports whether a store keeps the documents of containers. The Kubernetes API has the pods instead.
func KeepsEndpoints(s Store) bool {
	_, none := s.(interface{ KeepsNoEndpoints() })
	return !none
}
