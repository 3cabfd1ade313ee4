// Package store is where a cluster's wanted state lies: keys with small values,
// in a file of one host or in etcd.
//
// Every write is compare and swap: it names the revision at which the writer last
// saw each key. Several keys are written in one transaction, all or none.
package store

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Entry is a key with its value. Keys are paths without a slash at their ends:
// "nodes/a". The store's prefix is no part of them.
type Entry struct {
	Key      string
	Value    []byte
	Revision int64 // of the last write to this key; never 0
}

// Op is one change of a transaction.
type Op struct {
	Key    string
	Value  []byte // nil: the key is deleted
	Was    int64  // the key's revision as last seen; 0: it must not exist
	Verify bool   // change nothing, only require that the key is at Was
}

// ErrConflict is a transaction of which a key is not at the revision named: read
// it again and decide anew. Nothing was written. A *ConflictError says which.
var ErrConflict = errors.New("somebody else changed it since")

// ErrUnavailable is a store that cannot be reached, or that has no quorum. What
// was asked may have been done or not.
var ErrUnavailable = errors.New("the store is not available")

// ErrCompacted is a watch from a revision of which the store knows no more: list again.
var ErrCompacted = errors.New("the store has forgotten this revision")

// ErrRewound is a watch of a store that was set back to an earlier state, as by a
// restored backup. It is an ErrCompacted.
var ErrRewound = fmt.Errorf("the store was set back to what it was earlier: %w", ErrCompacted)

// Event is one change that a watch saw.
type Event struct {
	Entry
	Deleted bool
}

// Batch is what one or several transactions changed, never part of one.
type Batch struct {
	Events   []Event
	Revision int64 // of the store after them
}

// Store is safe for use by several goroutines. Errors of a store that cannot be
// reached are ErrUnavailable; a call returns when its context ends.
type Store interface {
	// Get reads a key; one that is not there is os.ErrNotExist.
	Get(ctx context.Context, key string) (Entry, error)

	// List reads every key that begins with a prefix ("nodes/"), in order, as of
	// one revision of the store. Large lists are read in pages.
	List(ctx context.Context, prefix string) (entries []Entry, revision int64, err error)

	// Commit makes a transaction of at most MaxOps and returns the store's revision after it, or
	// ErrConflict. A deleted key's Was is checked as any other's.
	Commit(ctx context.Context, ops ...Op) (revision int64, err error)

	// Watch calls f for each batch after a revision, in order, until f or the
	// watch fails or the context ends, whose error it returns.
	Watch(ctx context.Context, prefix string, after int64, f func(Batch) error) error

	// Hold keeps a key with a value for as long as the context lives, and lets it
	// go at most ttl after the process died. A key that another holder has is
	// ErrConflict. It returns when the key is held; lost is closed if it is lost,
	// which a store that was away for longer than ttl does.
	Hold(ctx context.Context, key string, value []byte, ttl time.Duration) (lost <-chan struct{}, err error)

	// Close lets go of everything that is held.
	Close() error
}
