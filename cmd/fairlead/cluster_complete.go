package main

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/cluster"
)

// completionTimeout is how long who presses Tab waits for the store.
const completionTimeout = time.Second

func (a *app) completeFrom(f *agentFlags, names func(*cluster.Snapshot) []string) cobra.CompletionFunc {
	return func(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		s, err := a.openStore(f)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer s.Close()
		ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
		defer cancel()
		snap, _, err := snapshotOf(ctx, s)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return names(snap), cobra.ShellCompDirectiveNoFileComp
	}
}

func sortedNames[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
