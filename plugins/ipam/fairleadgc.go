package ipam

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/ipam"
	"github.com/fairlead/fairlead/skel"
)

func fairleadGC(ctx context.Context, args *skel.CmdArgs) error {
	f, err := fairleadKeys(args.StdinData)
	if err != nil || cni.ValidateNetworkName(f.network) != nil {
		return err // nothing was allocated under an invalid name
	}
	return f.gc(ctx, args.StdinData)
}

// gc frees the addresses of this CNI network that no valid attachment has. It keeps the addresses of other CNI networks
// on the same cluster network.
func (f *fairlead) gc(ctx context.Context, data []byte) error {
	started := gcStarted(ctx)
	var c cni.PluginConf
	if err := cni.Decode(data, &c); err != nil {
		return err
	}
	var valid []ipam.Owner
	for _, a := range c.ValidAttachments {
		valid = append(valid, ipam.Owner{ContainerID: a.ContainerID, IfName: a.IfName})
	}
	err := f.gcHere(ctx, valid, started)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("release unused addresses of network %s: %w", f.network, err)
	}
	return nil
}

func (f *fairlead) gcHere(ctx context.Context, valid []ipam.Owner, started time.Duration) error {
	store, err := f.open(ctx, true)
	if err != nil {
		return err
	}
	defer store.Close()
	users, err := f.dir.Users(f.network)
	if err != nil {
		return err
	}
	for o, name := range users {
		if name != f.name {
			valid = append(valid, o)
		}
	}
	held, err := ipam.Allocations(f.dir.Addresses(), f.network)
	if err != nil {
		return err
	}
	freed, err := store.GC(valid, started)
	f.startCoolDown(freed)
	holds := map[ipam.Owner]bool{}
	for _, h := range held {
		if !slices.Contains(freed, h.Addr) {
			holds[h.Owner] = true
		} else if _, noted := users[h.Owner]; !noted {
			users[h.Owner] = f.name
		}
	}
	// Include recorded users without addresses, for example after an operation that failed halfway.
	var gone []ipam.Owner
	for o, name := range users {
		if name == f.name && !holds[o] && !slices.Contains(valid, o) {
			gone = append(gone, o)
		}
	}
	if noteErr := f.noteForAgent(ctx, gone...); noteErr != nil {
		return errors.Join(err, noteErr)
	}
	for _, o := range gone {
		err = errors.Join(err, f.dir.DropUser(f.network, o))
	}
	return err
}

func fairleadStatus(ctx context.Context, args *skel.CmdArgs) error {
	f, err := parseFairlead(args.StdinData, "")
	if err != nil {
		return err
	}
	err = f.status(ctx)
	if errors.Is(err, errNoBlocks) { // the agent may have claimed the last block since this node's blocks were read
		err = f.status(ctx)
	}
	if err != nil {
		return cni.Errorf(cni.CodePluginNotAvailable, "network %s has no address to allocate: %w", f.network, err)
	}
	return nil
}

func (f *fairlead) status(ctx context.Context) error {
	n, err := f.readNetwork(ctx)
	if err != nil {
		return err
	}
	groups, err := f.groups(n)
	if err != nil {
		return err
	}
	full, err := f.exhausted(ctx, groups)
	if err != nil {
		return err
	}
	for _, g := range full {
		if err := f.hasFreeBlock(ctx, g); err != nil {
			return errors.Join(fmt.Errorf("this node's blocks of %s are full", g.subnets[0].CIDR), err)
		}
	}
	if !slices.ContainsFunc(groups, (*group).cluster) {
		return nil
	}
	if _, err := f.agentStatus(ctx); err != nil {
		return err
	}
	return f.clusterCan(ctx, groups)
}

// hasFreeBlock returns an error if no subnet of a group has a free block.
func (f *fairlead) hasFreeBlock(ctx context.Context, g *group) error {
	for _, s := range g.subnets {
		if free, err := f.agentStatus(ctx, s.CIDR); free || err != nil {
			return err
		}
	}
	return errNoBlocks
}

var errNoBlocks = errors.New("and the cluster has no more blocks")

// agentStatus asks the agent whether it has its store, and whether each subnet has a free block.
func (f *fairlead) agentStatus(ctx context.Context, subnets ...netip.Prefix) (free bool, err error) {
	var r local.StatusResult
	if err := f.dir.Call(ctx, local.OpStatus, local.StatusArgs{Network: f.network, Subnets: subnets}, &r); err != nil {
		return false, err
	}
	if r.Store != "" {
		return false, errors.New(r.Store)
	}
	return r.Free, nil
}

// clusterCan asks the agent whether an unknown container would get an address. It ignores pools of fixed addresses:
// they may be full, and their pods may come again.
func (f *fairlead) clusterCan(ctx context.Context, groups []*group) error {
	wants, of, err := clusterWants(slices.DeleteFunc(slices.Clone(groups), func(g *group) bool { return g.fixed }))
	if err != nil || len(of) == 0 {
		return err
	}
	return f.couldClaim(ctx, local.ClaimArgs{Wants: wants})
}

// couldClaim reports whether a claim would succeed; it allocates nothing.
func (f *fairlead) couldClaim(ctx context.Context, args local.ClaimArgs) error {
	args.Network, args.Container, args.IfName = f.network, "status", mainIfName
	return f.dir.Call(ctx, local.OpPreview, args, new(local.ClaimResult))
}
