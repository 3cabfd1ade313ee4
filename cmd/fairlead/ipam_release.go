package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/address"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/store"
)

func (a *app) ipamCheck(f *agentFlags) *cobra.Command {
	c := &cobra.Command{
		Use: "check", Short: "whether the store, this node's files, and what containers hold agree",
		Long: "Check compares the cluster's addresses in the store with each other, with this node's files,\n" +
			"with what containers here hold, and that with the attachments. Each disagreement is named,\n" +
			"with what to do about it. Nothing is changed. If there is one the exit code is 4.",
		Example: "  fairlead ipam check\n  fairlead ipam check --json | jq -r '.[].subject'", Args: want(0, 0),
	}
	return a.inCluster(f, c, func(ctx context.Context, s store.Store, _ []string) error {
		snap, _, err := snapshotOf(ctx, s)
		if err != nil {
			return err
		}
		node, here, err := a.ipamHere(f)
		if err != nil {
			return err
		}
		found := address.Audit(snap, node, here)
		if err := a.printFindings(found, len(here.Pending)); err != nil {
			return err
		}
		if len(found) > 0 {
			return silentError{exitWrong}
		}
		return nil
	})
}

func (a *app) printFindings(found []address.Finding, pending int) error {
	if a.json {
		if found == nil {
			found = []address.Finding{} // not null
		}
		return a.printJSON(found)
	}
	for _, x := range found {
		fmt.Fprintf(a.stdout, "%s: %s\n    %s\n", x.Subject, x.Problem, x.Next)
	}
	if len(found) == 0 {
		fmt.Fprintln(a.stdout, "The store, this node's files and what containers hold agree.")
	}
	if pending > 0 {
		fmt.Fprintf(a.stdout, "%d releases wait for the agent.\n", pending)
	}
	return nil
}

func (a *app) ipamRelease(f *agentFlags) *cobra.Command {
	var network, node string
	var yes bool
	c := &cobra.Command{
		Use: "release BLOCK|ADDRESS|--node NODE", DisableFlagsInUseLine: true, Short: "give back a block, an address, or all that a removed node had",
		Long: "Release gives a block back: its node gives no more addresses of it, and lets it go when no\n" +
			"container holds one; a removed node's is free at once. An address that the cluster gave is\n" +
			"taken from its owner, unless a container has it on a node that is there. --node frees all that a\n" +
			"removed node had, without waiting for the grace period.",
		Example: "  fairlead ipam release 10.244.3.64/26 --yes\n  fairlead ipam release 10.250.0.7 --yes\n  fairlead ipam release --node worker-3 --yes",
	}
	c.Args = func(c *cobra.Command, args []string) error {
		if node != "" {
			return want(0, 0)(c, args)
		}
		return want(1, 1)(c, args)
	}
	a.inCluster(f, c, func(ctx context.Context, s store.Store, args []string) error {
		if node != "" {
			return a.releaseNode(ctx, s, node, yes)
		}
		if block, err := netip.ParsePrefix(args[0]); err == nil {
			return a.releaseBlock(ctx, s, network, block.Masked(), yes)
		}
		ip, err := netip.ParseAddr(args[0])
		if err != nil {
			return &usageError{fmt.Sprintf("%q is no block and no address", args[0]), "Type: fairlead ipam show"}
		}
		return a.releaseAddress(ctx, s, network, ip, yes)
	})
	c.Flags().StringVar(&network, "network", cluster.DefaultNetwork, "the network of the block or address")
	c.Flags().StringVar(&node, "node", "", "all that this removed node had")
	c.Flags().BoolVar(&yes, "yes", false, "do it; without it nothing is done")
	_ = c.RegisterFlagCompletionFunc("network", a.completeClusterNetworks(f))
	_ = c.RegisterFlagCompletionFunc("node", a.completeFrom(f, removedNodes))
	c.ValidArgsFunction = a.completeFrom(f, releasable)
	return c
}

func releasable(s *cluster.Snapshot) (words []string) {
	for _, key := range sortedNames(s.Blocks) {
		words = append(words, s.Blocks[key].CIDR.String())
	}
	for _, key := range sortedNames(s.Addresses) {
		words = append(words, s.Addresses[key].IP.String())
	}
	return words
}

func removedNodes(s *cluster.Snapshot) (names []string) {
	for _, r := range nodeRows(s) {
		if r.State == nodeRemoved {
			names = append(names, r.Name)
		}
	}
	return names
}

// unless asks for the word without which nothing is released.
func unless(yes bool, what, words string) error {
	if yes {
		return nil
	}
	return &usageError{"this would release " + what + ": nothing was done", "Type: fairlead ipam release " + words + " --yes"}
}

// inNetwork are the words that name a block or address on the command line.
func inNetwork(word, network string) string {
	if network == cluster.DefaultNetwork {
		return word
	}
	return word + " --network " + network
}

func (a *app) releaseBlock(ctx context.Context, s store.Store, network string, block netip.Prefix, yes bool) error {
	what := fmt.Sprintf("block %s of network %s", block, network)
	snap, _, err := snapshotOf(ctx, s)
	if err != nil {
		return err
	}
	b := snap.Blocks[cluster.BlockKey(network, block)]
	if b == nil {
		return noBlock(snap, network, block)
	}
	if err := unless(yes, what+", which is node "+b.Node+"'s", inNetwork(block.String(), network)); err != nil {
		return err
	}
	free, err := address.ReleaseBlock(ctx, s, network, block)
	if err != nil {
		return fmt.Errorf("release %s: %w", what, err)
	}
	if !free {
		if a.json {
			return a.printJSON(map[string]string{"asked": block.String()})
		}
		_, err := fmt.Fprintf(a.stdout, "%s is let go of when its node is there and no container holds an address of it\n", block)
		return err
	}
	return a.said("released", block.String())
}

// noBlock says where the block is, if it is another network's.
func noBlock(snap *cluster.Snapshot, network string, block netip.Prefix) error {
	for _, b := range snap.Blocks {
		if b.CIDR == block && b.Network != network {
			return &absentError{fmt.Sprintf("block %s is of network %s, not of %s\nType: fairlead ipam release %s", block, b.Network, network, inNetwork(block.String(), b.Network))}
		}
	}
	return &absentError{fmt.Sprintf("no node has block %s of network %s: see \"fairlead ipam show\"", block, network)}
}

func (a *app) releaseAddress(ctx context.Context, s store.Store, network string, ip netip.Addr, yes bool) error {
	what := fmt.Sprintf("address %s of network %s", ip, network)
	has, err := address.MayRelease(ctx, s, network, ip)
	if errors.Is(err, os.ErrNotExist) {
		return &absentError{fmt.Sprintf("the cluster gave %s to nobody; one out of a block is its node's to give, and free when its container is deleted: see \"fairlead list\" there", what)}
	}
	if err != nil {
		return fmt.Errorf("release %s: %w", what, err)
	}
	if err := unless(yes, what+", which is "+has.Owner+"'s", inNetwork(ip.String(), network)); err != nil {
		return err
	}
	if err := address.ReleaseAddress(ctx, s, network, ip); err != nil {
		return fmt.Errorf("release %s: %w", what, err)
	}
	return a.said("released", ip.String())
}

func (a *app) releaseNode(ctx context.Context, s store.Store, node string, yes bool) error {
	snap, _, err := snapshotOf(ctx, s)
	if err != nil {
		return err
	}
	if gone := removedNodes(snap); snap.Nodes[node] == nil && !slices.Contains(gone, node) {
		return noSuch("removed node", node, gone)
	}
	if snap.Nodes[node] == nil {
		if err := unless(yes, "all that node "+node+" had", "--node "+node); err != nil {
			return err
		}
	}
	keys, err := address.ReleaseNode(ctx, s, node)
	if err != nil {
		return err
	}
	return a.said("released", fmt.Sprintf("%d blocks and addresses of node %s", len(keys), node))
}
