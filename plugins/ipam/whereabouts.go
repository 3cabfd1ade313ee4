package ipam

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/ipam"
	"github.com/fairlead/fairlead/skel"
)

// Whereabouts returns the plugin whereabouts. It accepts whereabouts' own configuration; the agent allocates each
// address once in the cluster.
func Whereabouts() skel.Plugin {
	return skel.Plugin{
		Name:     "whereabouts",
		About:    "allocates addresses from ranges, unique in the cluster, through the agent",
		AnyNetns: true,
		Funcs: skel.CNIFuncs{
			Add:    whereaboutsAdd,
			Check:  whereaboutsCheck,
			Del:    whereaboutsDel,
			GC:     whereaboutsGC,
			Status: whereaboutsStatus,
		},
	}
}

// ValidateWhereabouts rejects a configuration that ADD would reject.
func ValidateWhereabouts(data []byte) error {
	_, err := parseWhereabouts(data, "")
	return err
}

// on returns fairlead-ipam's view of one of the networks. Only the source of the ranges differs.
func (w *whereabouts) on(network string) *fairlead {
	return &fairlead{version: w.version, name: w.name, network: network, pod: w.pod, dir: local.Open("", ""), byAgent: true}
}

func whereaboutsAdd(ctx context.Context, args *skel.CmdArgs) (*cni.Result, error) {
	w, err := parseWhereabouts(args.StdinData, args.Args)
	if err != nil {
		return nil, err
	}
	o := ownerOf(args)
	r := &cni.Result{CNIVersion: w.version, Routes: w.routes, DNS: w.dns}
	for i, n := range w.networks {
		ips, err := w.claim(ctx, o, n)
		if err != nil {
			return nil, agentNeeded(fmt.Errorf("allocate from %s: %w", n.name, errors.Join(err, w.undo(ctx, o, w.networks[:i]))))
		}
		for _, ip := range ips {
			r.IPs = append(r.IPs, cni.IP{Address: ip.Address, Gateway: ip.Gateway})
		}
	}
	r.IPs = append(r.IPs, w.fixed...)
	return r, nil
}

func (w *whereabouts) claim(ctx context.Context, o ipam.Owner, n whereaboutsNetwork) ([]ipam.IP, error) {
	f := w.on(n.name)
	return f.claim(ctx, o, n.groups, local.ClaimArgs{Wants: n.wants, Whereabouts: true}, func() ([]ipam.IP, error) { return f.allocateHere(ctx, o, &local.Network{}, n.groups) })
}

func (w *whereabouts) undo(ctx context.Context, o ipam.Owner, given []whereaboutsNetwork) error {
	var errs []error
	for _, n := range given {
		errs = append(errs, w.on(n.name).release(ctx, o))
	}
	return errors.Join(errs...)
}

// each calls do for every network of a configuration.
func (w *whereabouts) each(do func(f *fairlead) error) error {
	var errs []error
	for _, n := range w.networks {
		errs = append(errs, do(w.on(n.name)))
	}
	return errors.Join(errs...)
}

func whereaboutsCheck(ctx context.Context, args *skel.CmdArgs) error {
	w, err := parseWhereabouts(args.StdinData, args.Args)
	if err != nil {
		return err
	}
	return w.each(func(f *fairlead) error { return f.check(ctx, ownerOf(args)) })
}

func whereaboutsDel(ctx context.Context, args *skel.CmdArgs) error {
	o := ownerOf(args)
	return eachNetwork(args.StdinData, func(f *fairlead) bool { return f.dir.HasUser(f.network, o) }, func(f *fairlead) error { return f.release(ctx, o) })
}

func whereaboutsGC(ctx context.Context, args *skel.CmdArgs) error {
	return eachNetwork(args.StdinData, func(*fairlead) bool { return true }, func(f *fairlead) error { return f.gc(ctx, args.StdinData) })
}

// eachNetwork calls do for every network of the current configuration, and for every other network on this node that
// concerned accepts: the configuration may have had it at ADD.
func eachNetwork(data []byte, concerned func(f *fairlead) bool, do func(f *fairlead) error) error {
	name, _, err := identity[struct{}](data)
	if err != nil {
		return err
	}
	w := &whereabouts{name: name}
	names := map[string]bool{}
	if now, err := parseWhereabouts(data, ""); err == nil {
		for _, n := range now.networks {
			names[n.name] = true
		}
	}
	here, err := ipam.Networks(w.on("").dir.Addresses())
	errs := []error{err}
	for _, name := range here {
		if strings.HasPrefix(name, whereaboutsName) && concerned(w.on(name)) {
			names[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		errs = append(errs, do(w.on(name)))
	}
	return errors.Join(errs...)
}

func whereaboutsStatus(ctx context.Context, args *skel.CmdArgs) error {
	w, err := parseWhereabouts(args.StdinData, "")
	if err != nil {
		return err
	}
	var r local.StatusResult
	err = w.on("").dir.Call(ctx, local.OpStatus, local.StatusArgs{}, &r)
	if err == nil && r.Store != "" {
		err = errors.New(r.Store)
	}
	for _, n := range w.networks {
		if err == nil {
			err = w.on(n.name).couldClaim(ctx, local.ClaimArgs{Wants: n.wants, Whereabouts: true})
		}
	}
	if err != nil {
		return cni.Errorf(cni.CodePluginNotAvailable, "whereabouts has no address to allocate: %w", err)
	}
	return nil
}
