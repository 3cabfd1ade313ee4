// Package admin reads and changes the cluster in its store, as an administrator does: networks, nodes and addresses.
package admin

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/store"
)

// Snapshot reads the whole store. The second result has the revision of each key.
func Snapshot(ctx context.Context, s store.Store) (*cluster.Snapshot, map[string]int64, error) {
	return SnapshotBelow(ctx, s, "")
}

// SnapshotBelow is Snapshot for the keys with a prefix.
func SnapshotBelow(ctx context.Context, s store.Store, prefixes ...string) (*cluster.Snapshot, map[string]int64, error) {
	out := cluster.NewSnapshot()
	out.NoEndpoints = !store.KeepsEndpoints(s)
	revisions := map[string]int64{}
	for _, prefix := range prefixes {
		entries, revision, err := s.List(ctx, prefix)
		if err != nil {
			return nil, nil, err
		}
		out.Revision = revision
		for _, e := range entries {
			out.Set(e.Key, e.Value)
			revisions[e.Key] = e.Revision
		}
	}
	return out, revisions, nil
}

// NotFoundError reports a name that the store does not have. It is os.ErrNotExist.
type NotFoundError struct{ Message string }

func (e *NotFoundError) Error() string { return e.Message }

// Unwrap returns os.ErrNotExist.
func (*NotFoundError) Unwrap() error { return os.ErrNotExist }

// notFound returns an error that lists the names that exist.
func notFound(kind, name string, have []string) error {
	if len(have) == 0 {
		return &NotFoundError{fmt.Sprintf("there is no %s %s; there are none", kind, name)}
	}
	return &NotFoundError{fmt.Sprintf("there is no %s %s; there are: %s", kind, name, strings.Join(have, ", "))}
}
