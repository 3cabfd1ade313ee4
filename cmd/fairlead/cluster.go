package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/cni"
)

// clusterTimeout is how long a command waits for the store.
const clusterTimeout = 15 * time.Second

// inCluster makes what a command does with the store its RunE.
func (a *app) inCluster(f *agentFlags, c *cobra.Command, do func(ctx context.Context, s store.Store, args []string) error) *cobra.Command {
	c.RunE = func(c *cobra.Command, args []string) error {
		s, err := a.openStore(f)
		if err != nil {
			return err
		}
		defer s.Close()
		ctx, cancel := context.WithTimeout(c.Context(), clusterTimeout)
		defer cancel()
		err = do(ctx, s, args)
		if errors.Is(err, store.ErrUnavailable) {
			return &cni.Error{Code: cni.CodeTryAgainLater, Msg: err.Error() + "\nContainers go on without it. Is it running? The store is named in " + config.DefaultPath + ", or by --store-etcd-endpoints"}
		}
		return err
	}
	return c
}

// snapshotOf reads all of a store.
func snapshotOf(ctx context.Context, s store.Store) (*cluster.Snapshot, map[string]int64, error) {
	entries, revision, err := s.List(ctx, "")
	if err != nil {
		return nil, nil, err
	}
	out := cluster.NewSnapshot()
	out.Revision = revision
	revisions := map[string]int64{}
	for _, e := range entries {
		out.Set(e.Key, e.Value)
		revisions[e.Key] = e.Revision
	}
	return out, revisions, nil
}

// absentError is os.ErrNotExist, said in words that are about the cluster.
type absentError struct{ words string }

func (e *absentError) Error() string { return e.words }

// Unwrap makes it what errors.Is knows.
func (*absentError) Unwrap() error { return os.ErrNotExist }

// noSuch is an error of a name that the store has not.
func noSuch(kind, name string, have []string) error {
	if len(have) == 0 {
		return &absentError{fmt.Sprintf("there is no %s %s, nor any other", kind, name)}
	}
	return &absentError{fmt.Sprintf("there is no %s %s; there are: %s", kind, name, join(have))}
}
