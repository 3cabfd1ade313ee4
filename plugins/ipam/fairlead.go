package ipam

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/ipam"
	"github.com/fairlead/fairlead/skel"
)

// Fairlead returns the plugin fairlead-ipam. It allocates cluster addresses from blocks that this node owns, on its own
// disk, and asks the agent for what one node cannot decide.
func Fairlead() skel.Plugin {
	return skel.Plugin{
		Name:     "fairlead-ipam",
		About:    "allocates cluster addresses: from this node's blocks, or fixed ones that follow a pod",
		AnyNetns: true,
		Funcs: skel.CNIFuncs{
			Add:    fairleadAdd,
			Check:  fairleadCheck,
			Del:    fairleadDel,
			GC:     fairleadGC,
			Status: fairleadStatus,
		},
	}
}

// ValidateFairlead rejects a configuration that ADD would reject.
func ValidateFairlead(data []byte) error {
	_, err := parseFairlead(data, "")
	return err
}

func fairleadAdd(ctx context.Context, args *skel.CmdArgs) (*cni.Result, error) {
	f, err := parseFairlead(args.StdinData, args.Args)
	if err != nil {
		return nil, err
	}
	n, err := f.readNetwork(ctx)
	if err != nil {
		return nil, agentNeeded(err)
	}
	groups, err := f.groups(n)
	if err != nil {
		return nil, err
	}
	var firsts []netip.Addr
	for _, g := range groups {
		firsts = append(firsts, g.subnets[0].CIDR.Addr())
	}
	if err := checkFamilies(f.version, firsts); err != nil {
		return nil, err
	}
	ips, err := f.allocate(ctx, ownerOf(args), n, groups)
	if err != nil {
		return nil, agentNeeded(fmt.Errorf("allocate for network %s: %w", f.network, err))
	}
	return f.result(n, ips, args.IfName), nil
}

// readNetwork reads this node's part of the network. If the node has none yet, it asks the agent.
func (f *fairlead) readNetwork(ctx context.Context) (*local.Network, error) {
	n, err := f.dir.Read(f.network)
	if !errors.Is(err, os.ErrNotExist) {
		return n, err
	}
	if err := f.dir.Call(ctx, local.OpBlock, local.BlockArgs{Network: f.network}, nil); err != nil {
		return nil, fmt.Errorf("this node has not joined network %s yet: %w", f.network, err)
	}
	return f.dir.Read(f.network)
}

// agentNeeded gives an error the agent's code, or the code for a missing agent.
func agentNeeded(err error) error {
	if _, away := errors.AsType[*local.AwayError](err); away {
		return cni.Errorf(cni.CodeTryAgainLater, "%w", err)
	}
	if agentErr, ok := errors.AsType[*local.Error](err); ok {
		return cni.Errorf(agentErr.Code, "%w", err)
	}
	return err
}

// mainIfName is the interface with the default route. A container's other interfaces lead only to their own networks.
const mainIfName = "eth0"

func (f *fairlead) result(n *local.Network, ips []ipam.IP, ifName string) *cni.Result {
	r := &cni.Result{CNIVersion: f.version, Routes: f.routes, DNS: f.dns}
	family := map[bool]bool{}
	for _, ip := range ips {
		r.IPs = append(r.IPs, cni.IP{Address: ip.Address, Gateway: ip.Gateway})
		family[ip.Address.Addr().Is6()] = true
	}
	if f.hasRoutes {
		return r
	}
	routes := n.Routes
	isDefault := ifName == mainIfName
	if f.defaultRoute != nil {
		isDefault = *f.defaultRoute
	}
	if isDefault {
		routes = append(slices.Clone(routes), netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0))
	}
	for _, dst := range routes {
		if !family[dst.Addr().Is6()] {
			continue
		}
		route := cni.Route{Dst: dst}
		if cni.AtLeast(f.version, "1.1.0") {
			route.MTU = n.MTU
		}
		r.Routes = append(r.Routes, route)
	}
	return r
}

// fairleadKeys parses the keys that identify an attachment.
func fairleadKeys(data []byte) (f *fairlead, err error) {
	name, keys, err := identity[struct {
		Network string `json:"network"`
	}](data)
	if err != nil {
		return nil, err
	}
	f = &fairlead{data: data, name: name, network: keys.Network, dir: local.Open("", "")}
	if f.network == "" {
		f.network = defaultNetwork
	}
	return f, nil
}

// open opens the network's addresses on this node.
func (f *fairlead) open(ctx context.Context, existing bool) (*ipam.Store, error) {
	return ipam.Open(ctx, f.dir.Addresses(), f.network, ipam.Options{Existing: existing, AllRequested: f.byAgent})
}

func fairleadCheck(ctx context.Context, args *skel.CmdArgs) error {
	f, err := fairleadKeys(args.StdinData)
	if err != nil {
		return err
	}
	return f.check(ctx, ownerOf(args))
}

func (f *fairlead) check(ctx context.Context, o ipam.Owner) error {
	store, err := f.open(ctx, true)
	if err == nil {
		defer store.Close()
		addrs, lookupErr := store.Lookup(o)
		if lookupErr != nil || len(addrs) > 0 {
			return lookupErr
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return fmt.Errorf("network %s has no address for container %s, but ADD allocated one: run DEL and ADD again", f.network, o)
}

func fairleadDel(ctx context.Context, args *skel.CmdArgs) error {
	f, err := fairleadKeys(args.StdinData)
	if err != nil || cni.ValidateNetworkName(f.network) != nil {
		return err // nothing was allocated under an invalid name
	}
	return f.release(ctx, ownerOf(args))
}

// release frees an owner's addresses on this node. It always notes a release for the agent, because a killed ADD may
// have claimed cluster addresses without recording them here.
func (f *fairlead) release(ctx context.Context, o ipam.Owner) error {
	err := f.releaseHere(ctx, o)
	if errors.Is(err, os.ErrNotExist) {
		err = f.noteForAgent(ctx, o)
	}
	if err != nil {
		return fmt.Errorf("release the addresses of %s in network %s: %w", o, f.network, err)
	}
	return nil
}

func (f *fairlead) releaseHere(ctx context.Context, o ipam.Owner) error {
	store, err := f.open(ctx, true)
	if err != nil {
		return err
	}
	defer store.Close()
	freed, err := store.Release(o)
	if err != nil {
		return err
	}
	f.startCoolDown(freed)
	// Drop the user last: if this process is killed before that, GC finds a user without addresses and notes the
	// release again.
	if err := f.noteForAgent(ctx, o); err != nil {
		return err
	}
	return f.dir.DropUser(f.network, o)
}

// noteForAgent notes released cluster addresses for the agent.
func (f *fairlead) noteForAgent(ctx context.Context, list ...ipam.Owner) error {
	if !f.byCluster() {
		return nil
	}
	var gone []local.Release
	for _, o := range list {
		gone = append(gone, local.Release{Network: f.network, Container: o.ContainerID, IfName: o.IfName})
	}
	return f.dir.AppendReleases(ctx, gone...)
}

// startCoolDown notes released addresses for the cool-down, if this host allocates them.
func (f *fairlead) startCoolDown(freed []netip.Addr) {
	if !f.byAgent {
		_ = f.dir.Cool(f.network, freed) // on failure they are allocated again sooner
	}
}

// byCluster reports whether the network may have cluster-wide addresses.
func (f *fairlead) byCluster() bool {
	if f.byAgent {
		return true
	}
	n, err := f.dir.Read(f.network)
	if err != nil {
		return true
	}
	for _, s := range n.Subnets {
		if s.Cluster() {
			return true
		}
	}
	return false
}
