package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/store"
)

func (a *app) networkCommand() *cobra.Command {
	f := &agentFlags{}
	c := &cobra.Command{
		Use: "network COMMAND", DisableFlagsInUseLine: true, Short: "the cluster's networks", GroupID: "cluster",
		Long: "Network shows and changes the networks of the cluster. \"default\" is the one that every host\n" +
			"is on; an isolated one has containers of its own, which only its peers reach, and may have\n" +
			"addresses that others have too.",
		Example: "  fairlead network list\n  fairlead network create blue --isolated --subnet 10.0.0.0/16\n  fairlead network show blue\n  fairlead network delete blue",
		Args:    cobra.ArbitraryArgs, RunE: unknownCommand,
	}
	f.add(c)
	c.AddCommand(a.networkList(f), a.networkShow(f), a.networkCreate(f), a.networkSet(f), a.networkDelete(f))
	return c
}

func (a *app) networkList(f *agentFlags) *cobra.Command {
	return a.inCluster(f, &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "every network with its subnets", Long: "List prints the cluster's networks.",
		Example: "  fairlead network list", Args: want(0, 0),
	}, func(ctx context.Context, s store.Store, _ []string) error {
		snap, _, err := snapshotOf(ctx, s)
		if err != nil {
			return err
		}
		if a.json {
			return a.printJSON(snap.Networks)
		}
		t := table{{"NETWORK", "SUBNETS", "BACKENDS", "BLOCKS", "ISOLATED", "PEERS"}}
		for _, name := range sortedNames(snap.Networks) {
			t = append(t, networkRow(snap, snap.Networks[name]))
		}
		if len(t) == 1 {
			_, err := fmt.Fprintln(a.stdout, "No networks.\nMake the default one: fairlead network create default --subnet 10.244.0.0/16 --nat\nor give it to the first agent, in its configuration: see docs/agent.md")
			return err
		}
		return t.print(a.stdout)
	})
}

func networkRow(s *cluster.Snapshot, n *cluster.Network) []string {
	var subnets, backends []string
	for _, x := range n.Subnets {
		subnets = append(subnets, x.CIDR.String())
	}
	for _, b := range n.Backends {
		word := b.Type
		if b.When != "" {
			word += " (" + b.When + ")"
		}
		backends = append(backends, word)
	}
	if len(backends) == 0 {
		backends = []string{cluster.VXLAN}
	}
	blocks, isolated := 0, ""
	for _, b := range s.Blocks {
		if b.Network == n.Name {
			blocks++
		}
	}
	switch {
	case n.Isolated && n.VNI != 0:
		isolated = fmt.Sprintf("yes, VNI %d", n.VNI)
	case n.Isolated: // the first agent that needs one takes it
		isolated = "yes"
	}
	return []string{n.Name, join(subnets), join(backends), fmt.Sprint(blocks), isolated, join(peersOf(s, n))}
}

// peersOf are the peers of a network, with those that it does not reach as they do not
// name it.
func peersOf(s *cluster.Snapshot, n *cluster.Network) (words []string) {
	for _, p := range n.Peers {
		switch {
		case s.Networks[p] == nil:
			p += " (does not exist)"
		case !s.Mutual(n.Name, p):
			p += " (does not name " + n.Name + ")"
		}
		words = append(words, p)
	}
	return words
}

func (a *app) networkShow(f *agentFlags) *cobra.Command {
	return a.inCluster(f, &cobra.Command{
		Use: "show NETWORK", Short: "one network, as it can be changed and set again",
		Long:    "Show prints a network as YAML, which network set takes.",
		Example: "  fairlead network show default > default.yaml\n  fairlead network set default default.yaml",
		Args:    want(1, 1), ValidArgsFunction: a.completeClusterNetworks(f),
	}, func(ctx context.Context, s store.Store, args []string) error {
		n, _, err := networkOf(ctx, s, args[0])
		if err != nil {
			return err
		}
		if a.json {
			return a.printJSON(n)
		}
		return printYAML(a.stdout, n)
	})
}

// printYAML prints a document with the keys of its JSON.
func printYAML(w io.Writer, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var tree yaml.Node
	if err := yaml.Unmarshal(raw, &tree); err != nil {
		return err
	}
	plain(&tree)
	out, err := yaml.Marshal(&tree)
	if err != nil {
		return err
	}
	_, err = w.Write(out)
	return err
}

// plain takes JSON's braces and quotes away.
func plain(n *yaml.Node) {
	n.Style = 0
	for _, c := range n.Content {
		plain(c)
	}
}

func networkOf(ctx context.Context, s store.Store, name string) (*cluster.Network, int64, error) {
	e, err := s.Get(ctx, cluster.NetworkKey(name))
	if errors.Is(err, os.ErrNotExist) {
		snap, _, err := snapshotOf(ctx, s)
		if err != nil {
			return nil, 0, err
		}
		return nil, 0, noSuch("network", name, sortedNames(snap.Networks))
	}
	if err != nil {
		return nil, 0, err
	}
	n := &cluster.Network{Name: name}
	return n, e.Revision, json.Unmarshal(e.Value, n)
}

func (a *app) networkCreate(f *agentFlags) *cobra.Command {
	var subnets, peers []string
	n := &cluster.Network{}
	c := a.inCluster(f, &cobra.Command{
		Use: "create NETWORK", Short: "make a network",
		Long:    "Create makes a network. Containers of an isolated one are attached by the plugin fairlead-net,\nof any other by ptp or bridge with ipam of type fairlead-ipam; see docs/networks.md.",
		Example: "  fairlead network create blue --isolated --subnet 10.0.0.0/16 --nat\n  fairlead network create red --isolated --subnet 10.1.0.0/16 --peer blue",
		Args:    want(1, 1),
	}, func(ctx context.Context, s store.Store, args []string) error {
		n.Name, n.Peers = args[0], peers
		for _, x := range subnets {
			p, err := netip.ParsePrefix(x)
			if err != nil {
				return &usageError{fmt.Sprintf("--subnet is %q", x), `Want one like "10.0.0.0/16"`}
			}
			n.Subnets = append(n.Subnets, cluster.Subnet{CIDR: p})
		}
		if err := putNetwork(ctx, s, n, 0); err != nil {
			return err
		}
		return a.said("created", n.Name)
	})
	c.Flags().StringSliceVar(&subnets, "subnet", nil, "a range of its addresses; may be repeated")
	c.Flags().StringSliceVar(&peers, "peer", nil, "an isolated network that it reaches, if that says so too; may be repeated")
	c.Flags().BoolVar(&n.Isolated, "isolated", false, "give it a namespace of its own on every host")
	c.Flags().BoolVar(&n.NAT, "nat", false, "give what leaves it the host's address")
	c.Flags().IntVar(&n.MTU, "mtu", 0, "bytes of its containers' links (default: what the underlay leaves)")
	_ = c.RegisterFlagCompletionFunc("peer", a.completeClusterNetworks(f))
	return c
}

// putNetwork writes a network that is valid, and fits the others.
func putNetwork(ctx context.Context, s store.Store, n *cluster.Network, was int64) error {
	if err := n.Validate(); err != nil {
		return err
	}
	snap, _, err := snapshotOf(ctx, s)
	if err != nil {
		return err
	}
	if err := snap.Fits(n); err != nil {
		return err
	}
	value, err := json.Marshal(n)
	if err != nil {
		return err
	}
	ops := []store.Op{{Key: cluster.NetworkKey(n.Name), Value: value, Was: was}}
	if old := snap.Networks[n.Name]; n.Isolated && n.VNI != 0 && (old == nil || old.VNI != n.VNI) {
		ops = append(ops, store.Op{Key: cluster.VNIKey(n.VNI), Value: []byte(n.Name)})
	}
	_, err = s.Commit(ctx, ops...)
	if errors.Is(err, store.ErrConflict) && was == 0 {
		return fmt.Errorf("network %s exists: change it with fairlead network set", n.Name)
	}
	return err
}

func (a *app) networkSet(f *agentFlags) *cobra.Command {
	return a.inCluster(f, &cobra.Command{
		Use: "set NETWORK FILE", Short: "change a network",
		Long: "Set gives a network a new configuration, YAML or JSON, of which - is standard input. A subnet of\n" +
			"which nodes have blocks cannot go or be cut otherwise.",
		Example: "  fairlead network show default > default.yaml\n  fairlead network set default default.yaml",
		Args:    want(2, 2),
	}, func(ctx context.Context, s store.Store, args []string) error {
		n, err := readNetwork(args[0], args[1])
		if err != nil {
			return err
		}
		old, was, err := networkOf(ctx, s, args[0])
		if err != nil {
			return err
		}
		snap, _, err := snapshotOf(ctx, s)
		if err != nil {
			return err
		}
		if err := keepsBlocks(snap, old, n); err != nil {
			return err
		}
		if err := putNetwork(ctx, s, n, was); err != nil {
			return err
		}
		return a.said("set", n.Name)
	})
}

func readNetwork(name, file string) (*cluster.Network, error) {
	raw, err := fileOrInput(file)
	if err != nil {
		return nil, err
	}
	n := &cluster.Network{Name: name}
	if err := config.Parse(file, raw, n); err != nil {
		return nil, err
	}
	return n, nil
}

// keepsBlocks refuses a change that would leave blocks or addresses that belong to no subnet.
func keepsBlocks(s *cluster.Snapshot, old, n *cluster.Network) error {
	for _, b := range s.Blocks {
		if b.Network != n.Name {
			continue
		}
		i := slices.IndexFunc(n.Subnets, func(x cluster.Subnet) bool { return x.CIDR == b.Subnet && x.BlockBits() == b.CIDR.Bits() })
		if i < 0 {
			return fmt.Errorf("node %s has the block %s of subnet %s, which would be no more: keep the subnet for now, with all of it excluded (exclude: [%s]), delete the containers that are on it, and then type: fairlead ipam release %s --yes", b.Node, b.CIDR, b.Subnet, b.Subnet, inNetwork(b.CIDR.String(), n.Name))
		}
	}
	for _, a := range s.Addresses {
		if a.Network == n.Name && !slices.ContainsFunc(n.Subnets, func(x cluster.Subnet) bool { return x.Assign == cluster.AssignCluster && x.CIDR.Contains(a.IP) }) {
			return fmt.Errorf("%s, which is %s's, would be of no subnet that the cluster gives addresses of: keep its subnet, or take the address back first: \"fairlead ipam release %s\"", a.IP, a.Owner, inNetwork(a.IP.String(), n.Name))
		}
	}
	if old.Isolated != n.Isolated {
		return fmt.Errorf("network %s cannot change whether it is isolated: make another", n.Name)
	}
	return nil
}

func (a *app) networkDelete(f *agentFlags) *cobra.Command {
	return a.inCluster(f, &cobra.Command{
		Use: "delete NETWORK", Short: "remove a network that has no containers",
		Long:    "Delete removes a network. One of which nodes have blocks is refused: its containers go first,\nthen its blocks (fairlead ipam release).",
		Example: "  fairlead network delete blue", Args: want(1, 1), ValidArgsFunction: a.completeClusterNetworks(f),
	}, func(ctx context.Context, s store.Store, args []string) error {
		n, was, err := networkOf(ctx, s, args[0])
		if err != nil {
			return err
		}
		snap, revisions, err := snapshotOf(ctx, s)
		if err != nil {
			return err
		}
		if err := inUse(snap, args[0]); err != nil {
			return err
		}
		ops := []store.Op{{Key: cluster.NetworkKey(args[0]), Was: was}}
		if key := cluster.VNIKey(n.VNI); revisions[key] != 0 {
			ops = append(ops, store.Op{Key: key, Was: revisions[key]})
		}
		if _, err := s.Commit(ctx, ops...); err != nil {
			return err
		}
		return a.said("deleted", args[0])
	})
}

// inUse says what nodes have of a network, and how they lose it.
func inUse(s *cluster.Snapshot, network string) error {
	containers := map[string]int{}
	for _, e := range s.Endpoints {
		if e.Network == network {
			containers[e.Node]++
		}
	}
	var words []string
	for _, key := range sortedNames(s.Blocks) {
		if b := s.Blocks[key]; b.Network == network {
			words = append(words, fmt.Sprintf("node %s has block %s, and %d containers: delete these, then type: fairlead ipam release %s --yes", b.Node, b.CIDR, containers[b.Node], inNetwork(b.CIDR.String(), network)))
		}
	}
	for _, key := range sortedNames(s.Addresses) {
		if a := s.Addresses[key]; a.Network == network {
			words = append(words, fmt.Sprintf("%s is %s's: type: fairlead ipam release %s --yes", a.IP, a.Owner, inNetwork(a.IP.String(), network)))
		}
	}
	if len(words) == 0 {
		return nil
	}
	return fmt.Errorf("network %s is in use\n%s", network, strings.Join(words, "\n"))
}

func (a *app) completeClusterNetworks(f *agentFlags) cobra.CompletionFunc {
	return a.completeFrom(f, func(s *cluster.Snapshot) []string { return sortedNames(s.Networks) })
}
