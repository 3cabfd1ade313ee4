package ipam

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/ipam"
	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/skel"
)

// PlanFairlead returns what ADD of fairlead-ipam would return now. It allocates no address and claims no block.
func PlanFairlead(ctx context.Context, args *skel.CmdArgs) (*cni.Result, error) {
	f, err := parseFairlead(args.StdinData, args.Args)
	if err != nil {
		return nil, err
	}
	n, err := f.dir.Read(f.network)
	if errors.Is(err, os.ErrNotExist) {
		return nil, cannotPlan("this node has not joined network %s yet: the agent assigns it a block with the first container", f.network)
	}
	if err != nil {
		return nil, err
	}
	groups, err := f.groups(n)
	if err != nil {
		return nil, err
	}
	wants, of, err := clusterWants(groups)
	if err == nil && len(of) > 0 {
		err = f.previewClaim(ctx, ownerOf(args), of, local.ClaimArgs{Wants: wants})
	}
	if err != nil {
		return nil, err
	}
	ips, err := f.peek(ownerOf(args), groups)
	if err != nil {
		return nil, err
	}
	return f.result(n, ips, args.IfName), nil
}

// PlanWhereabouts returns what ADD of whereabouts would return now; it allocates nothing.
func PlanWhereabouts(ctx context.Context, args *skel.CmdArgs) (*cni.Result, error) {
	w, err := parseWhereabouts(args.StdinData, args.Args)
	if err != nil {
		return nil, err
	}
	r := &cni.Result{CNIVersion: w.version, Routes: w.routes, DNS: w.dns}
	for _, n := range w.networks {
		f := w.on(n.name)
		if err := f.previewClaim(ctx, ownerOf(args), n.groups, local.ClaimArgs{Wants: n.wants, Whereabouts: true}); err != nil {
			return nil, err
		}
		ips, err := f.peek(ownerOf(args), n.groups)
		if err != nil {
			return nil, err
		}
		for _, ip := range ips {
			r.IPs = append(r.IPs, cni.IP{Address: ip.Address, Gateway: ip.Gateway})
		}
	}
	r.IPs = append(r.IPs, w.fixed...)
	return r, nil
}

func cannotPlan(format string, args ...any) error {
	return &plugin.CannotPlanError{Why: fmt.Errorf(format, args...)}
}

// previewClaim asks the agent what it would allocate for each group.
func (f *fairlead) previewClaim(ctx context.Context, o ipam.Owner, of []*group, args local.ClaimArgs) error {
	args.Network, args.Container, args.IfName, args.Pod = f.network, o.ContainerID, o.IfName, f.pod
	var r local.ClaimResult
	err := f.dir.Call(ctx, local.OpPreview, args, &r)
	if err == nil && len(r.IPs) != len(of) {
		err = fmt.Errorf("it returned %d addresses: want %d", len(r.IPs), len(of))
	}
	if err != nil {
		return cannotPlan("the agent allocates cluster addresses: %w", err)
	}
	for i, g := range of {
		g.ip = r.IPs[i]
	}
	return nil
}

// peek returns what this host would allocate, from its disk.
func (f *fairlead) peek(o ipam.Owner, groups []*group) ([]ipam.IP, error) {
	sets, wanted, err := setsOf(groups)
	if err != nil {
		return nil, err
	}
	cooled, err := f.dir.Cooling(f.network, f.coolDown)
	if err != nil {
		return nil, err
	}
	addrs := coolingAddrs(cooled, wanted)
	cold := make([]ipam.RangeSet, len(sets))
	for i, set := range sets {
		cold[i] = local.Subtract(set, addrs)
	}
	ips, err := ipam.Peek(f.dir.Addresses(), f.network, o, cold, wanted)
	if errors.Is(err, ipam.ErrExhausted) && len(addrs) > 0 {
		ips, err = ipam.Peek(f.dir.Addresses(), f.network, o, sets, wanted)
	}
	if errors.Is(err, ipam.ErrExhausted) {
		return nil, cannotPlan("this node's blocks of network %s are full: the agent would claim another", f.network)
	}
	return ips, err
}
