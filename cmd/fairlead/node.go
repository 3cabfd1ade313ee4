package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/store"
)

// nodeRow is a node as list and show print it.
type nodeRow struct {
	Name      string   `json:"name"`
	State     string   `json:"state"` // "alive", "away", "removed", "flannel"
	Addresses []string `json:"addresses"`
	Blocks    []string `json:"blocks"`
	Endpoints int      `json:"endpoints"`
	Version   string   `json:"version,omitempty"`
	ID        string   `json:"id,omitempty"`
}

// The states of a node.
const (
	nodeAlive   = "alive"
	nodeAway    = "away"    // its agent is not heard; what it made goes on
	nodeRemoved = "removed" // its blocks are kept for a while
	nodeFlannel = "flannel" // flanneld runs there
)

func (a *app) nodeCommand() *cobra.Command {
	f := &agentFlags{}
	c := &cobra.Command{
		Use: "node COMMAND", DisableFlagsInUseLine: true, Short: "the cluster's nodes", GroupID: "cluster",
		Long: "Node shows the nodes that joined the cluster, and takes one out of it. The cluster is\n" +
			"the one that this host's agent is configured for; the agent itself need not run.",
		Example: "  fairlead node list\n  fairlead node show worker-3\n  fairlead node remove worker-3",
		Args:    cobra.ArbitraryArgs, RunE: unknownCommand,
	}
	f.add(c)
	c.AddCommand(a.nodeList(f), a.nodeShow(f), a.nodeRemove(f))
	return c
}

func (a *app) nodeList(f *agentFlags) *cobra.Command {
	return a.inCluster(f, &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "every node, whether its agent is heard, and its blocks",
		Long: "List prints the nodes. One that is \"away\" has an agent that is not heard: its containers go\n" +
			"on, and its addresses stay its own. One that is \"removed\" still has blocks, for a while.",
		Example: "  fairlead node list\n  fairlead node list --json | jq -r '.[] | select(.state == \"away\") | .name'",
		Args:    want(0, 0),
	}, func(ctx context.Context, s store.Store, _ []string) error {
		snap, _, err := snapshotOf(ctx, s)
		if err != nil {
			return err
		}
		return a.printNodes(nodeRows(snap))
	})
}

func nodeRows(s *cluster.Snapshot) []nodeRow {
	names := map[string]bool{}
	for n := range s.Nodes {
		names[n] = true
	}
	for _, b := range s.Blocks {
		names[b.Node] = true
	}
	out := []nodeRow{} // not null in JSON
	for _, n := range sortedNames(names) {
		out = append(out, nodeRowOf(s, n))
	}
	for _, key := range s.Leases() {
		if l := s.Flannel[key]; l.Ours == "" {
			out = append(out, flannelRow(l))
		}
	}
	return out
}

// flannelRow is a node of flannel's, by its lease.
func flannelRow(l *cluster.FlannelLease) nodeRow {
	r := nodeRow{Name: l.NodeName(), State: nodeFlannel, Addresses: []string{}, Blocks: []string{}}
	for _, p := range l.Node().Addresses {
		r.Addresses = append(r.Addresses, p.Addr().String())
	}
	for _, p := range l.Subnets {
		r.Blocks = append(r.Blocks, p.String())
	}
	return r
}

func nodeRowOf(s *cluster.Snapshot, name string) nodeRow {
	r := nodeRow{Name: name, State: nodeRemoved, Addresses: []string{}, Blocks: []string{}}
	if n := s.Nodes[name]; n != nil {
		r.State, r.Version, r.ID = nodeAway, n.Version, n.ID
		for _, p := range n.Addresses {
			r.Addresses = append(r.Addresses, p.Addr().String())
		}
	}
	if s.Alive[name] {
		r.State = nodeAlive
	}
	for _, net := range sortedNames(s.Networks) {
		for _, b := range s.BlocksOf(net, name) {
			r.Blocks = append(r.Blocks, blockName(net, b))
		}
	}
	for _, p := range s.Endpoints {
		if p.Node == name {
			r.Endpoints++
		}
	}
	return r
}

// blockName is a block with its network, unless that is the default one.
func blockName(network string, b netip.Prefix) string {
	if network == cluster.DefaultNetwork {
		return b.String()
	}
	return network + ":" + b.String()
}

func (a *app) printNodes(rows []nodeRow) error {
	if a.json {
		return a.printJSON(rows)
	}
	if len(rows) == 0 {
		_, err := fmt.Fprintln(a.stdout, "No nodes. A host joins when its agent starts: fairlead agent")
		return err
	}
	t := table{{"NODE", "STATE", "ADDRESSES", "BLOCKS", "CONTAINERS", "AGENT"}}
	for _, r := range rows {
		t = append(t, []string{r.Name, r.State, join(r.Addresses), join(r.Blocks), fmt.Sprint(r.Endpoints), r.Version})
	}
	return t.print(a.stdout)
}

func (a *app) nodeShow(f *agentFlags) *cobra.Command {
	return a.inCluster(f, &cobra.Command{
		Use: "show NODE", Short: "one node with all that it holds",
		Long:    "Show prints a node: its addresses, blocks, fixed addresses that are there now, and containers.",
		Example: "  fairlead node show worker-3", Args: want(1, 1), ValidArgsFunction: a.completeNodes(f),
	}, func(ctx context.Context, s store.Store, args []string) error {
		snap, _, err := snapshotOf(ctx, s)
		if err != nil {
			return err
		}
		row := nodeRowOf(snap, args[0])
		if row.State == nodeRemoved && len(row.Blocks) == 0 {
			return noSuch("node", args[0], snap.NodeNames())
		}
		return a.printClusterNode(snap, row)
	})
}

func (a *app) printClusterNode(s *cluster.Snapshot, row nodeRow) error {
	fixed, endpoints := []*cluster.Address{}, []*cluster.Endpoint{}
	for _, k := range sortedNames(s.Addresses) {
		if s.Addresses[k].Node == row.Name {
			fixed = append(fixed, s.Addresses[k])
		}
	}
	for _, k := range sortedNames(s.Endpoints) {
		if s.Endpoints[k].Node == row.Name {
			endpoints = append(endpoints, s.Endpoints[k])
		}
	}
	if a.json {
		return a.printJSON(map[string]any{"node": row, "addresses": fixed, "endpoints": endpoints})
	}
	t := table{{"node", row.Name}, {"state", row.State}, {"addresses", join(row.Addresses)}, {"blocks", join(row.Blocks)}, {"agent", row.Version}, {"machine", row.ID}}
	for _, x := range fixed {
		t = append(t, []string{"address", x.IP.String() + " of " + x.Owner})
	}
	for _, p := range endpoints {
		t = append(t, []string{"container", fmt.Sprintf("%s %s %s %v %s", p.Container, p.IfName, p.Network, p.IPs, p.Pod)})
	}
	return t.print(a.stdout)
}

func (a *app) nodeRemove(f *agentFlags) *cobra.Command {
	return a.inCluster(f, &cobra.Command{
		Use: "remove NODE", Short: "take a node that is gone for good out of the cluster",
		Long: "Remove takes a node out of the cluster: the others drop their routes to it at once, and its\n" +
			"blocks and addresses become free after the grace period (5 minutes, unless configured otherwise).\n" +
			"One whose agent is heard is refused: end the agent first, or it would join again.",
		Example: "  fairlead node remove worker-3", Args: want(1, 1), ValidArgsFunction: a.completeNodes(f),
	}, func(ctx context.Context, s store.Store, args []string) error {
		if _, err := s.Get(ctx, cluster.AliveKey(args[0])); err == nil {
			return fmt.Errorf("node %s is alive: its agent would join again. End it first (systemctl stop fairlead-agent there)", args[0])
		}
		e, err := s.Get(ctx, cluster.NodeKey(args[0]))
		if err != nil {
			snap, _, listErr := snapshotOf(ctx, s)
			if listErr != nil {
				return errors.Join(err, listErr)
			}
			return noSuch("node", args[0], snap.NodeNames())
		}
		if _, err := s.Commit(ctx, store.Op{Key: e.Key, Was: e.Revision}); err != nil {
			return fmt.Errorf("remove node %s: %w", args[0], err)
		}
		return a.said("removed", args[0])
	})
}

// said answers a command that changed one thing.
func (a *app) said(what, name string) error {
	if a.json {
		return a.printJSON(map[string]string{what: name})
	}
	_, err := fmt.Fprintf(a.stdout, "%s %s\n", what, name)
	return err
}

// completeNodes completes names of nodes, if the store answers soon.
func (a *app) completeNodes(f *agentFlags) cobra.CompletionFunc {
	return a.completeFrom(f, func(s *cluster.Snapshot) []string { return s.NodeNames() })
}
