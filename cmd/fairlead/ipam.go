package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/address"
	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/attach"
)

func (a *app) ipamCommand() *cobra.Command {
	f := &agentFlags{}
	c := &cobra.Command{
		Use: "ipam COMMAND", DisableFlagsInUseLine: true, Short: "the cluster's addresses", GroupID: "cluster",
		Long: "Ipam shows who has which of the cluster's addresses, compares the store with this host, and\n" +
			"gives back what somebody has. Of the blocks of other nodes it knows what containers report.",
		Example: "  fairlead ipam show\n  fairlead ipam check\n  fairlead ipam release 10.244.3.64/26 --yes",
		Args:    cobra.ArbitraryArgs, RunE: unknownCommand,
	}
	f.add(c)
	c.AddCommand(a.ipamShow(f), a.ipamCheck(f), a.ipamRelease(f))
	return c
}

// ipamView is what show prints.
type ipamView struct {
	Subnets   []ipamSubnet  `json:"subnets"`
	Blocks    []ipamBlock   `json:"blocks"`
	Addresses []ipamAddress `json:"addresses"`
	Pending   int           `json:"pendingReleases"`
}

type ipamSubnet struct {
	Network string `json:"network"`
	Pool    string `json:"pool,omitempty"`
	CIDR    string `json:"cidr"`
	Assign  string `json:"assign"`
	Blocks  int    `json:"blocks"` // that nodes have
	Of      uint64 `json:"of"`     // that there are; of one that is given singly, 0
}

type ipamBlock struct {
	Network string `json:"network"`
	Block   string `json:"block"`
	Node    string `json:"node"`
	Used    int    `json:"used"`
	Size    int    `json:"size"`
	State   string `json:"state"` // "", "here", "flannel" (its plugin gives them), "leaving", "node removed"
}

type ipamAddress struct {
	Network string `json:"network"`
	Address string `json:"address"`
	Owner   string `json:"owner"`
	Fixed   bool   `json:"fixed"`
	Node    string `json:"node"`
	Where   string `json:"container"`
}

func (a *app) ipamShow(f *agentFlags) *cobra.Command {
	c := &cobra.Command{
		Use: "show [NETWORK]", Short: "subnets, blocks with their use, and addresses that the cluster gave singly",
		Long: "Show prints the subnets of the cluster's networks, the blocks that nodes have of them and how\n" +
			"full they are, and the addresses that have an owner of their own: fixed ones, and whereabouts'.",
		Example: "  fairlead ipam show\n  fairlead ipam show default --json | jq '.blocks[] | select(.used == 0)'",
		Args:    want(0, 1), ValidArgsFunction: a.completeClusterNetworks(f),
	}
	return a.inCluster(f, c, func(ctx context.Context, s store.Store, args []string) error {
		snap, _, err := snapshotOf(ctx, s)
		if err != nil {
			return err
		}
		only := ""
		if len(args) > 0 {
			only = args[0]
			if snap.Networks[only] == nil && !hasAddresses(snap, only) {
				return noSuch("network", only, sortedNames(snap.Networks))
			}
		}
		conf, here, err := a.ipamHere(f)
		if err != nil {
			return err
		}
		return a.printIPAM(ipamViewOf(snap, conf, here, only))
	})
}

func hasAddresses(s *cluster.Snapshot, network string) bool {
	for _, x := range s.Addresses {
		if x.Network == network {
			return true
		}
	}
	return false
}

// ipamHere is this node's name and what its disk says.
func (a *app) ipamHere(f *agentFlags) (node string, here *address.Here, err error) {
	conf, err := a.clusterConfig(f)
	if err != nil {
		return "", nil, err
	}
	here, err = address.LookHere(local.Open(a.getenv(local.LibVariable), a.getenv(local.RunVariable)))
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
	cached, err := a.runtime(nil).GetCachedAttachments("") // of plugins of another kind, too
	for _, r := range cached {
		here.Attached[r.ContainerID+" "+r.IfName] = true
	}
	return conf.Node, here, err
}

func ipamViewOf(s *cluster.Snapshot, node string, h *address.Here, only string) *ipamView {
	v := &ipamView{Subnets: []ipamSubnet{}, Blocks: []ipamBlock{}, Addresses: []ipamAddress{}, Pending: len(h.Pending)}
	for _, name := range sortedNames(s.Networks) {
		for _, x := range s.Networks[name].Subnets {
			if only == "" || only == name {
				v.Subnets = append(v.Subnets, subnetOf(s, name, x))
			}
		}
	}
	for _, key := range sortedNames(s.Blocks) {
		if b := s.Blocks[key]; only == "" || only == b.Network {
			v.Blocks = append(v.Blocks, blockOf(s, b, node, h))
		}
	}
	for _, key := range sortedNames(s.Addresses) {
		if x := s.Addresses[key]; only == "" || only == x.Network {
			v.Addresses = append(v.Addresses, ipamAddress{x.Network, x.IP.String(), x.Owner, x.Fixed, x.Node, x.Container})
		}
	}
	return v
}

func subnetOf(s *cluster.Snapshot, network string, x cluster.Subnet) ipamSubnet {
	out := ipamSubnet{Network: network, Pool: x.Name, CIDR: x.CIDR.String(), Assign: cluster.AssignCluster}
	if x.Assign == cluster.AssignCluster {
		return out
	}
	out.Assign, out.Of = cluster.AssignBlock, 1<<min(x.BlockBits()-x.CIDR.Bits(), 62)
	for _, b := range s.Blocks {
		if b.Network == network && x.CIDR.Contains(b.CIDR.Addr()) {
			out.Blocks++
		}
	}
	return out
}

func blockOf(s *cluster.Snapshot, b *cluster.Block, node string, h *address.Here) ipamBlock {
	out := ipamBlock{Network: b.Network, Block: b.CIDR.String(), Node: b.Node}
	ls := local.Subnet{CIDR: b.Subnet}
	if n := s.Networks[b.Network]; n != nil {
		for _, x := range n.Subnets {
			if x.CIDR.Contains(b.CIDR.Addr()) {
				ls.Exclude = x.Exclude
			}
		}
	}
	if set, err := ls.Ranges(b.CIDR); err == nil {
		out.Size = set.Size(1 << 16)
	}
	var ips []netip.Addr
	for _, x := range h.Held[b.Network] {
		ips = append(ips, x.Addr)
	}
	lent := b.Node == node && isLent(h, b)
	if lent {
		ips = h.HostLocal
	}
	if b.Node != node {
		ips = reported(s, b.Network)
	}
	for _, ip := range ips {
		if b.CIDR.Contains(ip) {
			out.Used++
		}
	}
	switch {
	case b.Release:
		out.State = "leaving"
	case s.Nodes[b.Node] == nil:
		out.State = "node removed"
	case lent:
		out.State = "flannel"
	case b.Node == node:
		out.State = "here"
	}
	return out
}

// isLent tells whether the plugin flannel gives a block's addresses here.
func isLent(h *address.Here, b *cluster.Block) bool {
	n := h.Networks[b.Network]
	return n != nil && slices.ContainsFunc(n.Subnets, func(s local.Subnet) bool { return slices.Contains(s.Lent, b.CIDR) })
}

// reported are the addresses that nodes say their containers have.
func reported(s *cluster.Snapshot, network string) (ips []netip.Addr) {
	for _, p := range s.Endpoints {
		if p.Network == network {
			ips = append(ips, p.IPs...)
		}
	}
	return ips
}

func (a *app) printIPAM(v *ipamView) error {
	if a.json {
		return a.printJSON(v)
	}
	t := table{{"NETWORK", "SUBNET", "POOL", "GIVEN", "BLOCKS"}}
	for _, x := range v.Subnets {
		blocks := ""
		if x.Of > 0 {
			blocks = fmt.Sprintf("%d of %d", x.Blocks, x.Of)
		}
		given := map[string]string{cluster.AssignBlock: "in blocks", cluster.AssignCluster: "singly"}[x.Assign]
		t = append(t, []string{x.Network, x.CIDR, x.Pool, given, blocks})
	}
	u := table{{"NETWORK", "BLOCK", "NODE", "USED", "STATE"}}
	for _, b := range v.Blocks {
		u = append(u, []string{b.Network, b.Block, b.Node, fmt.Sprintf("%d of %d", b.Used, b.Size), b.State})
	}
	w := table{{"NETWORK", "ADDRESS", "OWNER", "FIXED", "NODE"}}
	for _, x := range v.Addresses {
		w = append(w, []string{x.Network, x.Address, x.Owner, map[bool]string{true: "yes"}[x.Fixed], x.Node})
	}
	for i, t := range slices.DeleteFunc([]table{t, u, w}, func(t table) bool { return len(t) == 1 }) {
		if i > 0 {
			fmt.Fprintln(a.stdout)
		}
		if err := t.print(a.stdout); err != nil {
			return err
		}
	}
	if v.Pending > 0 {
		fmt.Fprintf(a.stdout, "\n%d releases wait for the agent.\n", v.Pending)
	}
	return nil
}
