package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/admin"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/store"
)

func (a *app) networkCommand() *cobra.Command {
	f := &agentFlags{}
	c := &cobra.Command{
		Use: "network COMMAND", DisableFlagsInUseLine: true, Short: "show and change networks of the cluster", GroupID: "cluster",
		Long: "Network shows and changes the networks of the cluster. Every host is on the network\n" +
			"\"default\". An isolated network has a network namespace of its own on every host: only its\n" +
			"peers reach its containers, and its addresses may overlap with those of other networks.",
		Example: "  fairlead network list\n  fairlead network create blue --isolated --subnet 10.0.0.0/16\n  fairlead network show blue > blue.yaml\n  fairlead network apply -f blue.yaml\n  fairlead network delete blue",
		Args:    cobra.ArbitraryArgs, RunE: groupCommand,
	}
	f.add(c)
	c.AddCommand(a.networkList(f), a.networkShow(f), a.networkCreate(f), a.networkApply(f), a.networkSet(f), a.networkDelete(f))
	return c
}

func (a *app) networkList(f *agentFlags) *cobra.Command {
	return a.withStore(f, readsStore, &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "list all networks with their subnets", Long: "List prints the networks of the cluster.",
		Example: "  fairlead network list\n  fairlead network list -o wide", Args: want(0, 0),
	}, func(ctx context.Context, s store.Store, _ []string) error {
		snap, _, err := admin.Snapshot(ctx, s)
		if err != nil {
			return err
		}
		if a.structured() {
			return a.printData(snap.Networks)
		}
		t := table{{"NETWORK", "SUBNETS", "BACKENDS", "BLOCKS", "ISOLATED", "PEERS", "NAT", "MTU", "EXCLUDED"}}
		for _, name := range sortedKeys(snap.Networks) {
			t = append(t, networkRow(snap, snap.Networks[name]))
		}
		if len(t) == 1 {
			_, err := fmt.Fprintln(a.stdout, "No networks.\nCreate the default network: fairlead network create default --subnet 10.244.0.0/16 --nat\nOr put it into the configuration of the first agent: see docs/agent.md")
			return err
		}
		return a.printTable(t, 6)
	})
}

func networkRow(s *cluster.Snapshot, n *cluster.Network) []string {
	var subnets, backends, excluded []string
	for _, x := range n.Subnets {
		subnets = append(subnets, x.CIDR.String())
		excluded = append(excluded, x.Exclude...)
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
	blocks, isolated, mtu := 0, "", ""
	for _, b := range s.Blocks {
		if b.Network == n.Name {
			blocks++
		}
	}
	switch {
	case n.Isolated && n.VNI != 0:
		isolated = fmt.Sprintf("yes, VNI %d", n.VNI)
	case n.Isolated: // the first agent that needs a VNI chooses it
		isolated = "yes"
	}
	if n.MTU != 0 {
		mtu = fmt.Sprint(n.MTU)
	}
	return []string{n.Name, join(subnets), join(backends), fmt.Sprint(blocks), isolated, join(peersOf(s, n)), yes(n.NAT), mtu, join(excluded)}
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return ""
}

// peersOf returns the peers of a network, and says which of them do not name it as a peer.
func peersOf(s *cluster.Snapshot, n *cluster.Network) (peers []string) {
	for _, p := range n.Peers {
		switch {
		case s.Networks[p] == nil:
			p += " (does not exist)"
		case !s.ArePeers(n.Name, p):
			p += " (does not name " + n.Name + ")"
		}
		peers = append(peers, p)
	}
	return peers
}

func (a *app) networkShow(f *agentFlags) *cobra.Command {
	return a.withStore(f, readsStore, &cobra.Command{
		Use: "show NETWORK", Short: "show one network in the form that apply reads",
		Long:    "Show prints a network as YAML. Change the output and give it to \"fairlead network apply\".",
		Example: "  fairlead network show default > default.yaml\n  fairlead network apply -f default.yaml",
		Args:    want(1, 1), ValidArgsFunction: a.completeClusterNetworks(f),
	}, func(ctx context.Context, s store.Store, args []string) error {
		n, _, err := admin.Network(ctx, s, args[0])
		if err != nil {
			return err
		}
		switch {
		case a.structured():
			return a.printData(config.NetworkDocument(n))
		case a.format != "":
			snap, _, err := admin.Snapshot(ctx, s)
			if err != nil {
				return err
			}
			return a.printTable(table{{"NETWORK", "SUBNETS", "BACKENDS", "BLOCKS", "ISOLATED", "PEERS", "NAT", "MTU", "EXCLUDED"}, networkRow(snap, n)}, 6)
		}
		return printYAML(a.stdout, config.NetworkDocument(n))
	})
}

// networkFlags are the flags of network create.
type networkFlags struct {
	cluster.Network
	subnets, exclude, backends []string
	blockSizes                 []int
	dry                        bool
}

func (a *app) networkCreate(f *agentFlags) *cobra.Command {
	n := &networkFlags{}
	c := &cobra.Command{
		Use: "create NETWORK", Short: "create a network",
		Long: "Create creates a network. A container joins the network default by ptp or bridge with ipam of type\n" +
			"fairlead-ipam, and an isolated network by the plugin fairlead-net. Hosts do not connect the containers of\n" +
			"any other network: it only has addresses, such as for macvlan; see docs/networks.md.\n\n" +
			"--backend is TYPE[,KEY=VALUE...]. TYPE is host-gw, vxlan, wireguard, ipip or bgp; docs/backends.md\n" +
			"lists the keys of each backend. Backends are tried in their order for each pair of nodes.",
		Example: "  fairlead network create default --subnet 10.244.0.0/16 --nat --backend host-gw,when=direct --backend vxlan,port=8472\n" +
			"  fairlead network create blue --isolated --subnet 10.0.0.0/16 --block-size 24 --exclude 10.0.0.0/24\n" +
			"  fairlead network create red --isolated --subnet 10.1.0.0/16 --peer blue",
		Args: want(1, 1),
	}
	flags := c.Flags()
	flags.StringSliceVar(&n.subnets, "subnet", nil, "Range of addresses, such as 10.0.0.0/16. May be repeated.")
	flags.IntSliceVar(&n.blockSizes, "block-size", nil, "Prefix length of a node's block (default 26, and 122 for IPv6). A value above 32 is for the IPv6 subnets. May be repeated.")
	flags.StringSliceVar(&n.exclude, "exclude", nil, "Address, prefix or range FIRST-LAST that is not assigned. May be repeated.")
	flags.StringArrayVar(&n.backends, "backend", nil, "Backend, TYPE[,KEY=VALUE...] (default vxlan). May be repeated.")
	flags.StringSliceVar(&n.Peers, "peer", nil, "Isolated network to connect to, which must name this network as its peer, too. May be repeated.")
	flags.BoolVar(&n.Isolated, "isolated", false, "Give the network a network namespace of its own on every host.")
	flags.BoolVar(&n.NAT, "nat", false, "Masquerade traffic that leaves the cluster with the host's address.")
	flags.IntVar(&n.MTU, "mtu", 0, "MTU of the containers' links in bytes (default: what the underlay and the backends leave).")
	flags.IntVar(&n.VNI, "vni", 0, "VXLAN network identifier of an isolated network (default: the first agent that needs one chooses it).")
	dryRunFlag(c, &n.dry)
	_ = c.RegisterFlagCompletionFunc("peer", a.completeClusterNetworks(f))
	return a.withStore(f, createsStore, c, func(ctx context.Context, s store.Store, args []string) error {
		if err := n.complete(args[0]); err != nil {
			return err
		}
		if err := admin.CreateNetwork(ctx, s, &n.Network, n.dry); err != nil {
			return err
		}
		return a.printChanged(would(n.dry, "create", "created"), n.Name)
	})
}

// complete builds the network from the flags.
func (n *networkFlags) complete(name string) error {
	n.Name = name
	bad := func(flag, value, want string) error {
		return &usageError{fmt.Sprintf("--%s %s: %s", flag, value, want), "Type: fairlead network create --help"}
	}
	if len(n.subnets) == 0 {
		return &usageError{"a network needs addresses: add --subnet 10.0.0.0/16, for example", "Type: fairlead network create --help"}
	}
	for _, x := range n.subnets {
		p, err := netip.ParsePrefix(x)
		if err != nil {
			return bad("subnet", x, "want a range like 10.0.0.0/16")
		}
		n.Subnets = append(n.Subnets, cluster.Subnet{CIDR: p})
	}
	for _, size := range n.blockSizes {
		used := false
		for i := range n.Subnets {
			if x := &n.Subnets[i]; x.CIDR.Addr().Is6() == (size > 32) {
				x.Block, used = size, true
			}
		}
		if !used {
			return bad("block-size", strconv.Itoa(size), "no subnet of that family: a size above 32 is for IPv6")
		}
	}
	for _, x := range n.exclude {
		first, _, err := cluster.ParseRange(x)
		if err != nil {
			return bad("exclude", x, err.Error())
		}
		i := slices.IndexFunc(n.Subnets, func(s cluster.Subnet) bool { return s.CIDR.Contains(first) })
		if i < 0 {
			return bad("exclude", x, "it is in no --subnet")
		}
		n.Subnets[i].Exclude = append(n.Subnets[i].Exclude, x)
	}
	for _, x := range n.backends {
		b, err := parseBackend(x)
		if err != nil {
			return bad("backend", x, err.Error())
		}
		n.Backends = append(n.Backends, b)
	}
	if e, ok := errors.AsType[*cluster.FieldError](n.Check()); ok {
		return &usageError{strings.TrimSpace(flagOf(e.Field) + " " + e.Problem.Error()), "Type: fairlead network create --help"}
	}
	return nil
}

// flagOf returns the flag of "network create" for a field of the network's document.
func flagOf(field string) string {
	list, rest, _ := strings.Cut(field, "[")
	switch {
	case strings.HasSuffix(rest, ".block"):
		return "--block-size"
	case strings.Contains(rest, "exclude"):
		return "--exclude"
	case field == "":
		return ""
	}
	if list == "subnets" || list == "backends" || list == "peers" {
		list = strings.TrimSuffix(list, "s")
	}
	return "--" + list
}

// parseBackend reads TYPE[,KEY=VALUE...] with the parser of the configuration file.
func parseBackend(text string) (b cluster.Backend, err error) {
	typ, rest, _ := strings.Cut(text, ",")
	doc := "type: " + strconv.Quote(typ) + "\n"
	for pair := range strings.SplitSeq(rest, ",") {
		key, value, ok := strings.Cut(pair, "=")
		if rest == "" {
			break
		}
		if !ok || strings.ContainsAny(value, "\n#:{[&*!|>'\"%@`") {
			return b, fmt.Errorf("want KEY=VALUE, found %q", pair)
		}
		doc += strconv.Quote(key) + ": " + value + "\n"
	}
	if err := config.Parse("", []byte(doc), &b); err != nil {
		_, problem, _ := strings.Cut(err.Error(), ": ") // without the position in a document that the user did not write
		return b, fmt.Errorf("%s", problem)
	}
	return b, nil
}

const applyLong = `Apply creates the networks of a file, or changes them so that they are as the file says:
every key that the file lacks gets its default. The file is YAML or JSON in the form that
"fairlead network show" prints; it may have several documents. NETWORK names the network
of a file without "name".

A subnet in which nodes have blocks must stay, and its block size too.`

func (a *app) networkApply(f *agentFlags) *cobra.Command {
	file, dry := "", false
	c := &cobra.Command{
		Use: "apply -f FILE [NETWORK]", Short: "create or change networks as a file says", Long: applyLong,
		Example: "  fairlead network show default > default.yaml\n  fairlead network apply -f default.yaml --dry-run\n  fairlead network apply -f default.yaml",
		Args:    want(0, 1), ValidArgsFunction: a.completeClusterNetworks(f), DisableFlagsInUseLine: true,
	}
	c.Flags().StringVarP(&file, "file", "f", "", "File with the networks. - is standard input.")
	_ = c.MarkFlagFilename("file", "yaml", "yml", "json")
	dryRunFlag(c, &dry)
	return a.withStore(f, createsStore, c, func(ctx context.Context, s store.Store, args []string) error {
		if file == "" {
			return &usageError{"--file is missing: it names the file with the networks", "Type: fairlead network apply --help"}
		}
		return a.applyFile(ctx, s, file, strings.Join(args, ""), dry)
	})
}

func (a *app) applyFile(ctx context.Context, s store.Store, file, name string, dry bool) error {
	raw, err := a.fileOrInput(file)
	if err != nil {
		return err
	}
	all, err := config.ParseNetworks(file, raw, name)
	if err != nil {
		return err
	}
	done := make([]string, len(all))
	for i, n := range all { // before the first change, so that a file is not applied in part
		if done[i], err = admin.ApplyNetwork(ctx, s, n, true, all[:i]...); err != nil {
			return err
		}
	}
	for i, n := range all {
		if !dry {
			if done[i], err = admin.ApplyNetwork(ctx, s, n, false); err != nil {
				return err
			}
		}
		if err := a.printApplied(done[i], n.Name, dry); err != nil {
			return err
		}
	}
	return nil
}

// printApplied prints what an apply did to an object, or would do: admin.Created, admin.Changed or admin.Unchanged.
func (a *app) printApplied(done, name string, dry bool) error {
	if dry && done != admin.Unchanged {
		done = map[string]string{admin.Created: "would create", admin.Changed: "would change"}[done]
	}
	return a.printChanged(done, name)
}

// networkSet is the old form of apply.
func (a *app) networkSet(f *agentFlags) *cobra.Command {
	c := &cobra.Command{Use: "set NETWORK FILE", Short: "old form of apply", Hidden: true, Args: want(2, 2)}
	return a.withStore(f, readsStore, c, func(ctx context.Context, s store.Store, args []string) error {
		if _, _, err := admin.Network(ctx, s, args[0]); err != nil {
			return err
		}
		return a.applyFile(ctx, s, args[1], args[0], false)
	})
}

func (a *app) networkDelete(f *agentFlags) *cobra.Command {
	dry := false
	c := &cobra.Command{
		Use: "delete NETWORK", Short: "delete a network that has no containers",
		Long: "Delete deletes a network. The command rejects a network in which nodes have blocks: delete\n" +
			"its containers, then release its blocks (fairlead ipam release).",
		Example: "  fairlead network delete blue --dry-run\n  fairlead network delete blue", Args: want(1, 1), ValidArgsFunction: a.completeClusterNetworks(f),
	}
	dryRunFlag(c, &dry)
	return a.withStore(f, readsStore, c, func(ctx context.Context, s store.Store, args []string) error {
		if err := admin.DeleteNetwork(ctx, s, args[0], dry); err != nil {
			return err
		}
		return a.printChanged(would(dry, "delete", "deleted"), args[0])
	})
}
