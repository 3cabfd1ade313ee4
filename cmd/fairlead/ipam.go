package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/address"
	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/admin"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/attach"
)

func (a *app) ipamCommand() *cobra.Command {
	f := &agentFlags{}
	c := &cobra.Command{
		Use: "ipam COMMAND", DisableFlagsInUseLine: true, Short: "show, check and release addresses of the cluster", GroupID: "cluster",
		Long: "Ipam shows the owners of the cluster's addresses, compares the store with this host, and\n" +
			"releases blocks and addresses. It uses the store that the agent of this host is configured\n" +
			"for. The agent need not run.",
		Example: "  fairlead ipam show\n  fairlead ipam check\n  fairlead ipam release 10.244.3.64/26",
		Args:    cobra.ArbitraryArgs, RunE: groupCommand,
	}
	f.add(c)
	c.AddCommand(a.ipamShow(f), a.ipamCheck(f), a.ipamRelease(f))
	return c
}

func (a *app) ipamShow(f *agentFlags) *cobra.Command {
	c := &cobra.Command{
		Use: "show [NETWORK]", Short: "show subnets, blocks and their use, and single addresses",
		Long: "Show prints the subnets of the cluster's networks, the blocks of the nodes with their use,\n" +
			"and the addresses that the cluster assigns one by one: fixed addresses and those of the\n" +
			"plugin whereabouts. For the blocks of this node it counts the addresses on this node's\n" +
			"disk; for other nodes, those that their agents report. With the store in Kubernetes, agents\n" +
			"report no containers: the use of other nodes' blocks is -, and null in JSON.",
		Example: "  fairlead ipam show\n  fairlead ipam show default --json | jq '.blocks[] | select(.used == 0)'",
		Args:    want(0, 1), ValidArgsFunction: a.completeClusterNetworks(f),
	}
	return a.withStore(f, readsStore, c, func(ctx context.Context, s store.Store, args []string) error {
		snap, _, err := admin.Snapshot(ctx, s)
		if err != nil {
			return err
		}
		node, here, err := a.ipamHere(f)
		if err != nil {
			return err
		}
		network := ""
		if len(args) > 0 {
			network = args[0]
		}
		use, err := admin.UseOf(snap, node, here, network)
		if err != nil {
			return err
		}
		return a.printIPAM(use)
	})
}

// ipamHere returns the name of this node and what its disk and its attachments hold.
func (a *app) ipamHere(f *agentFlags) (node string, here *address.LocalState, err error) {
	conf, err := a.clusterConfig(f)
	if err != nil {
		return "", nil, err
	}
	here, err = address.ReadLocalState(local.Open(a.getenv(local.LibVariable), a.getenv(local.RunVariable)))
	if err != nil {
		return "", nil, err
	}
	records, err := attach.Open(a.getenv(attach.RootVariable)).List("")
	if err != nil {
		return "", nil, err
	}
	here.Attached = map[string]bool{}
	for _, r := range records {
		here.Attached[r.ContainerID+" "+r.IfName] = true
	}
	cached, err := a.runtime(nil).GetCachedAttachments("") // attachments of other plugins have no record
	for _, r := range cached {
		here.Attached[r.ContainerID+" "+r.IfName] = true
	}
	return conf.Node, here, err
}

func (a *app) printIPAM(v *admin.IPAM) error {
	if a.structured() {
		return a.printData(v)
	}
	if len(v.Subnets) == 0 {
		_, err := fmt.Fprintln(a.stdout, "No networks. To see how to create one, type: fairlead network list")
		return err
	}
	subnets := table{{"NETWORK", "SUBNET", "POOL", "ASSIGNED", "BLOCKS"}}
	for _, x := range v.Subnets {
		use := ""
		switch {
		case x.Of > 0:
			use = fmt.Sprintf("%d of %d", x.Blocks, x.Of)
		case x.Blocks > 0:
			use = fmt.Sprint(x.Blocks)
		}
		assigned := map[string]string{cluster.AssignBlock: "in blocks", cluster.AssignCluster: "one by one", cluster.AssignPodCIDR: "by podCIDR"}[x.Assign]
		subnets = append(subnets, []string{x.Network, x.CIDR, x.Pool, assigned, use})
	}
	blocks := table{{"NETWORK", "BLOCK", "NODE", "USED", "STATE"}}
	for _, b := range v.Blocks {
		blocks = append(blocks, []string{b.Network, b.Block, b.Node, fmt.Sprintf("%s of %d", orDash(b.Used), b.Size), b.State})
	}
	addresses := table{{"NETWORK", "ADDRESS", "OWNER", "FIXED", "NODE", "CONTAINER"}}
	for _, x := range v.Addresses {
		addresses = append(addresses, []string{x.Network, x.Address, x.Owner, yes(x.Fixed), x.Node, x.Where})
	}
	for i, t := range slices.DeleteFunc([]table{subnets, blocks, addresses}, func(t table) bool { return len(t) == 1 }) {
		if i > 0 {
			fmt.Fprintln(a.stdout)
		}
		if err := a.printTable(t, 5); err != nil {
			return err
		}
	}
	if v.Pending > 0 {
		fmt.Fprintf(a.stdout, "\n%d releases wait for the agent.\n", v.Pending)
	}
	return nil
}

func (a *app) ipamCheck(f *agentFlags) *cobra.Command {
	c := &cobra.Command{
		Use: "check", Short: "compare the store with this node's files and containers",
		Long: "Check compares the addresses in the store with each other, with the files of this node and\n" +
			"with the addresses of its containers and attachments. It prints each difference and what to\n" +
			"do about it, and changes nothing. Exit code 4: there is a difference.",
		Example: "  fairlead ipam check\n  fairlead ipam check --json | jq -r '.[].subject'", Args: want(0, 0),
	}
	return a.withStore(f, readsStore, c, func(ctx context.Context, s store.Store, _ []string) error {
		snap, _, err := admin.Snapshot(ctx, s)
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
	if a.structured() {
		if found == nil {
			found = []address.Finding{} // not null
		}
		return a.printData(found)
	}
	for _, x := range found {
		fmt.Fprintf(a.stdout, "%s: %s\n    %s\n", x.Subject, x.Problem, x.Next)
	}
	if len(found) == 0 {
		fmt.Fprintln(a.stdout, "The store, this node's files and its containers agree.")
	}
	if pending > 0 {
		fmt.Fprintf(a.stdout, "%d releases wait for the agent.\n", pending)
	}
	return nil
}

func (a *app) ipamRelease(f *agentFlags) *cobra.Command {
	r := &release{app: a}
	c := &cobra.Command{
		Use: "release BLOCK|ADDRESS|--node NODE", DisableFlagsInUseLine: true, Short: "release a block, an address, or everything of a removed node",
		Long: "Release frees a block or an address. The node of a block stops assigning addresses from it and\n" +
			"frees it when no container uses one; the block of a removed node is free at once. An address\n" +
			"that the cluster assigned is taken from its owner, unless a container on an existing node has\n" +
			"it. --node frees everything that a removed node had, without waiting for the grace period.",
		Example: "  fairlead ipam release 10.244.3.64/26 --dry-run\n  fairlead ipam release 10.244.3.64/26\n  fairlead ipam release 10.250.0.7\n  fairlead ipam release --node worker-3",
	}
	c.Args = func(c *cobra.Command, args []string) error {
		if r.node != "" {
			return want(0, 0)(c, args)
		}
		return want(1, 1)(c, args)
	}
	c.Flags().StringVar(&r.network, "network", cluster.DefaultNetwork, "Network of the block or address.")
	c.Flags().StringVar(&r.node, "node", "", "Release everything that this removed node had.")
	dryRunFlag(c, &r.dry)
	c.Flags().Bool("yes", true, "Not needed any more.")
	_ = c.Flags().MarkHidden("yes")
	_ = c.RegisterFlagCompletionFunc("network", a.completeClusterNetworks(f))
	_ = c.RegisterFlagCompletionFunc("node", a.completeFrom(f, admin.RemovedNodes))
	c.ValidArgsFunction = a.completeFrom(f, releasable)
	return a.withStore(f, readsStore, c, r.run)
}

// release is one run of ipam release.
type release struct {
	*app
	network, node string
	dry           bool
}

func (r *release) run(ctx context.Context, s store.Store, args []string) error {
	verb := would(r.dry, "release", "released")
	if r.node != "" {
		count, err := admin.ReleaseNode(ctx, s, r.node, r.dry)
		if err != nil {
			return err
		}
		return r.printChanged(verb, fmt.Sprintf("%d blocks and addresses of node %s", count, r.node))
	}
	if block, err := netip.ParsePrefix(args[0]); err == nil {
		return r.block(ctx, s, block.Masked())
	}
	ip, err := netip.ParseAddr(args[0])
	if err != nil {
		return &usageError{fmt.Sprintf("%q is neither a block nor an address", args[0]), "Type: fairlead ipam show"}
	}
	owner, err := admin.ReleaseAddress(ctx, s, r.network, ip, r.dry)
	if err != nil {
		return err
	}
	if r.structured() {
		return r.printChanged(verb, ip.String())
	}
	return r.printChanged(verb, ip.String()+" of "+owner)
}

func (r *release) block(ctx context.Context, s store.Store, block netip.Prefix) error {
	node, free, err := admin.ReleaseBlock(ctx, s, r.network, block, r.dry)
	switch {
	case err != nil:
		return err
	case r.dry && !r.structured():
		return r.printChanged("would release", fmt.Sprintf("%s of node %s", block, node))
	case free || r.dry:
		return r.printChanged(would(r.dry, "release", "released"), block.String())
	case r.structured():
		return r.printData(map[string]string{"asked": block.String()})
	}
	_, err = fmt.Fprintf(r.stdout, "%s will be free when no container on node %s uses an address of it\n", block, node)
	return err
}

// releasable returns the blocks and addresses that release accepts.
func releasable(s *cluster.Snapshot) (words []string) {
	for _, key := range sortedKeys(s.Blocks) {
		if b := s.Blocks[key]; !b.OfNode {
			words = append(words, b.CIDR.String())
		}
	}
	for _, key := range sortedKeys(s.Addresses) {
		words = append(words, s.Addresses[key].IP.String())
	}
	return words
}
