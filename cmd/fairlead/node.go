package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/admin"
	"github.com/fairlead/fairlead/agent/store"
)

func (a *app) nodeCommand() *cobra.Command {
	f := &agentFlags{}
	c := &cobra.Command{
		Use: "node COMMAND", DisableFlagsInUseLine: true, Short: "show and remove nodes of the cluster", GroupID: "cluster",
		Long: "Node shows the nodes of the cluster and removes one from it. It uses the store that the\n" +
			"agent of this host is configured for. The agent need not run.",
		Example: "  fairlead node list\n  fairlead node show worker-3\n  fairlead node remove worker-3",
		Args:    cobra.ArbitraryArgs, RunE: groupCommand,
	}
	f.add(c)
	c.AddCommand(a.nodeList(f), a.nodeShow(f), a.nodeRemove(f))
	return c
}

func (a *app) nodeList(f *agentFlags) *cobra.Command {
	return a.withStore(f, readsStore, &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "list all nodes with their state and blocks",
		Long: "List prints the nodes of the cluster. The agent of an \"away\" node does not report; the\n" +
			"node's containers keep running and its addresses stay reserved. A \"removed\" node still\n" +
			"has blocks or addresses, until the grace period ends. A \"flannel\" node runs flanneld.\n" +
			"The number of containers is -, and null in JSON, for a flannel node, and for all nodes if\n" +
			"the store is Kubernetes: kubectl get pods shows them.",
		Example: "  fairlead node list\n  fairlead node list --json | jq -r '.[] | select(.state == \"away\") | .name'",
		Args:    want(0, 0),
	}, func(ctx context.Context, s store.Store, _ []string) error {
		snap, _, err := admin.Snapshot(ctx, s)
		if err != nil {
			return err
		}
		return a.printNodes(admin.Nodes(snap))
	})
}

// noNodes replaces an empty table of nodes.
const noNodes = "No nodes. A host joins the cluster when its agent starts: fairlead agent"

func (a *app) printNodes(nodes []admin.Node) error {
	if a.structured() {
		return a.printData(nodes)
	}
	if len(nodes) == 0 {
		_, err := fmt.Fprintln(a.stdout, noNodes)
		return err
	}
	t := table{{"NODE", "STATE", "ADDRESSES", "BLOCKS", "CONTAINERS", "AGENT", "MACHINE"}}
	for _, n := range nodes {
		t = append(t, []string{n.Name, n.State, join(n.Addresses), join(n.Blocks), orDash(n.Endpoints), n.Version, n.ID})
	}
	return a.printTable(t, 6)
}

func (a *app) nodeShow(f *agentFlags) *cobra.Command {
	return a.withStore(f, readsStore, &cobra.Command{
		Use: "show NODE", Short: "show one node with everything it holds",
		Long:    "Show prints a node with its addresses, its blocks, the fixed addresses that are on it now,\nand its containers. If the store is\nKubernetes, it has no containers: kubectl get pods shows them.",
		Example: "  fairlead node show worker-3", Args: want(1, 1), ValidArgsFunction: a.completeNodes(f),
	}, func(ctx context.Context, s store.Store, args []string) error {
		snap, _, err := admin.Snapshot(ctx, s)
		if err != nil {
			return err
		}
		d, err := admin.DescribeNode(snap, args[0])
		if err != nil {
			return err
		}
		return a.printNodeDetails(d)
	})
}

func (a *app) printNodeDetails(d *admin.NodeDetails) error {
	if a.structured() {
		return a.printData(d)
	}
	n := d.Node
	t := table{{"node", n.Name}, {"state", n.State}, {"addresses", join(n.Addresses)}, {"blocks", join(n.Blocks)}, {"agent", n.Version}, {"machine", n.ID}}
	for _, x := range d.Addresses {
		t = append(t, []string{"address", x.IP.String() + " of " + x.Owner})
	}
	if d.Endpoints == nil {
		t = append(t, []string{"container", "-"})
	}
	for _, p := range d.Endpoints {
		t = append(t, []string{"container", fmt.Sprintf("%s %s %s %v %s", p.Container, p.IfName, p.Network, p.IPs, p.Pod)})
	}
	return t.print(a.stdout)
}

func (a *app) nodeRemove(f *agentFlags) *cobra.Command {
	dry := false
	c := &cobra.Command{
		Use: "remove NODE", Short: "remove a node from the cluster for good",
		Long: "Remove removes a node from the cluster. The other nodes drop their routes to it at once.\n" +
			"Its blocks and addresses become free after the grace period (5 minutes by default).\n" +
			"Stop the node's agent first: the command rejects a node whose agent runs.",
		Example: "  fairlead node remove worker-3 --dry-run\n  fairlead node remove worker-3", Args: want(1, 1), ValidArgsFunction: a.completeNodes(f),
	}
	dryRunFlag(c, &dry)
	return a.withStore(f, readsStore, c, func(ctx context.Context, s store.Store, args []string) error {
		if err := admin.RemoveNode(ctx, s, args[0], dry); err != nil {
			return err
		}
		return a.printChanged(would(dry, "remove", "removed"), args[0])
	})
}
