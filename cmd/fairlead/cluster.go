package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/admin"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/cni"
)

// clusterTimeout limits the time of a command that uses the store.
const clusterTimeout = 15 * time.Second

// completionTimeout limits the wait of a user who presses Tab.
const completionTimeout = time.Second

// storeUse says what a command does with the store.
type storeUse int

const (
	readsStore    storeUse = iota
	createsStore           // it may be the first to write to a file
	previewsStore          // it would be the first to write to a file
)

// openStore opens the store of the cluster. A command that only reads does not create the store's file.
func (a *app) openStore(f *agentFlags, use storeUse) (store.Store, error) {
	conf, err := a.clusterConfig(f)
	if err != nil {
		return nil, err
	}
	return a.openStoreOf(conf, use)
}

// openStoreOf is openStore for a configuration.
func (a *app) openStoreOf(conf *config.Config, use storeUse) (store.Store, error) {
	if conf.Store.IsFile() && use != createsStore {
		_, err := os.Stat(conf.Store.File)
		switch missing := errors.Is(err, os.ErrNotExist); {
		case missing && use == previewsStore:
			return emptyStore{}, nil
		case missing && conf.Store.File == config.DefaultStore(a.getenv):
			return nil, fmt.Errorf("there is no store on this host: no agent has run here\n%s", nameStore)
		case missing:
			return nil, fmt.Errorf("there is no store in the file %s\n%s", conf.Store.File, nameStore)
		}
	}
	return conf.Open()
}

// emptyStore is a store that nobody has written to.
type emptyStore struct{ store.Store }

// Get finds nothing.
func (emptyStore) Get(context.Context, string) (store.Entry, error) {
	return store.Entry{}, os.ErrNotExist
}

// List finds nothing.
func (emptyStore) List(context.Context, string) ([]store.Entry, int64, error) { return nil, 0, nil }

// Close does nothing.
func (emptyStore) Close() error { return nil }

// withStore sets the RunE of a command to a function that gets the store.
func (a *app) withStore(f *agentFlags, use storeUse, c *cobra.Command, do func(ctx context.Context, s store.Store, args []string) error) *cobra.Command {
	c.RunE = func(c *cobra.Command, args []string) error {
		if dry := c.Flags().Lookup("dry-run"); use == createsStore && dry != nil && dry.Value.String() == "true" {
			use = previewsStore
		}
		s, err := a.openStore(f, use)
		if err != nil {
			return err
		}
		defer s.Close()
		ctx, cancel := context.WithTimeout(c.Context(), clusterTimeout)
		defer cancel()
		err = do(ctx, s, args)
		if errors.Is(err, store.ErrUnavailable) {
			return &cni.Error{Code: cni.CodeTryAgainLater, Msg: err.Error() + "\nCheck that the store runs, and that its address is right in " + config.DefaultPath + ", --store-etcd-endpoints or --store-kubernetes-kubeconfig. Containers keep running without it."}
		}
		return err
	}
	return c
}

// completeFrom completes names from the store, if it answers soon.
func (a *app) completeFrom(f *agentFlags, names func(*cluster.Snapshot) []string) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		s, err := a.openStore(f, readsStore)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer s.Close()
		ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
		defer cancel()
		snap, _, err := admin.Snapshot(ctx, s)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return names(snap), cobra.ShellCompDirectiveNoFileComp
	}
}

func (a *app) completeClusterNetworks(f *agentFlags) cobra.CompletionFunc {
	return a.completeFrom(f, func(s *cluster.Snapshot) []string { return sortedKeys(s.Networks) })
}

func (a *app) completeNodes(f *agentFlags) cobra.CompletionFunc {
	return a.completeFrom(f, func(s *cluster.Snapshot) []string { return s.NodeNames() })
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// orDash returns a number as text, or - if it is not known.
func orDash(n *int) string {
	if n == nil {
		return "-"
	}
	return strconv.Itoa(*n)
}

// dryRunFlag adds the flag that every command with a preview has.
func dryRunFlag(c *cobra.Command, dry *bool) {
	c.Flags().BoolVarP(dry, "dry-run", "n", false, "Print what the command would do, and change nothing.")
}

// would returns the verb for the answer of a command: "would remove" with --dry-run, else "removed".
func would(dry bool, infinitive, done string) string {
	if dry {
		return "would " + infinitive
	}
	return done
}
