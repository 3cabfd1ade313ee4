package ipam

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/ipam"
	"github.com/fairlead/fairlead/plugin"
)

// maxBlockRequests limits how often one ADD asks the agent for another block.
const maxBlockRequests = 3

// allocate returns an address for each group: cluster addresses from the agent, others from this node's blocks.
func (f *fairlead) allocate(ctx context.Context, o ipam.Owner, n *local.Network, groups []*group) ([]ipam.IP, error) {
	wants, of, err := clusterWants(groups)
	if err != nil {
		return nil, err
	}
	if len(of) == 0 {
		return f.allocateOrAsk(ctx, o, n, groups)
	}
	return f.claim(ctx, o, of, local.ClaimArgs{Wants: wants}, func() ([]ipam.IP, error) { return f.allocateOrAsk(ctx, o, n, groups) })
}

// allocateOrAsk allocates on this node, and asks the agent for another block if this node's blocks are full.
func (f *fairlead) allocateOrAsk(ctx context.Context, o ipam.Owner, n *local.Network, groups []*group) ([]ipam.IP, error) {
	ips, err := f.allocateHere(ctx, o, n, groups)
	for try := 0; try < maxBlockRequests && errors.Is(err, ipam.ErrExhausted); try++ {
		if err = f.requestBlocks(ctx, groups, err); err == nil {
			ips, err = f.allocateHere(ctx, o, n, groups)
		}
	}
	return ips, err
}

// clusterWants returns the addresses to request from the agent, and the groups that they are for.
func clusterWants(groups []*group) (wants []local.Want, of []*group, err error) {
	for _, g := range groups {
		if !g.cluster() {
			continue
		}
		w := local.Want{IP: g.ip, Fixed: g.fixed}
		for _, s := range g.subnets {
			spans, err := clusterSpans(s)
			if err != nil {
				return nil, nil, err
			}
			w.Ranges = append(w.Ranges, spans...)
		}
		wants, of = append(wants, w), append(of, g)
	}
	return wants, of, nil
}

// claim asks the agent for an address for each group; then records them on this node. If then fails, or this process
// ends first, the agent takes the addresses back.
func (f *fairlead) claim(ctx context.Context, o ipam.Owner, of []*group, args local.ClaimArgs, then func() ([]ipam.IP, error)) (ips []ipam.IP, err error) {
	if err := f.checkNotAllocated(ctx, o); err != nil {
		return nil, err
	}
	args.Network, args.Container, args.IfName, args.Pod = f.network, o.ContainerID, o.IfName, f.pod
	var r local.ClaimResult
	err = f.dir.CallAnd(ctx, local.OpClaim, args, &r, func() error {
		if len(r.IPs) != len(of) {
			return fmt.Errorf("the agent returned %d addresses: want %d", len(r.IPs), len(of))
		}
		for i, g := range of {
			g.ip = r.IPs[i]
		}
		ips, err = then()
		return err
	})
	return ips, err
}

// clusterSpans returns the addresses of a subnet that the cluster may allocate. It excludes the second address, which
// is the gateway on every node.
func clusterSpans(s local.Subnet) (out []local.Span, err error) {
	set, err := s.Ranges(s.CIDR)
	if err != nil {
		return nil, err
	}
	for _, r := range local.Subtract(set, []netip.Addr{s.CIDR.Addr().Next()}) {
		out = append(out, local.Span{First: r.Start, Last: r.End})
	}
	return out, nil
}

// checkNotAllocated rejects an owner that already has addresses, before the cluster allocates them again.
func (f *fairlead) checkNotAllocated(ctx context.Context, o ipam.Owner) error {
	if plugin.ReusesAddresses(ctx) || !f.dir.HasUser(f.network, o) {
		return nil
	}
	store, err := f.open(ctx, false)
	if err != nil {
		return err
	}
	defer store.Close()
	held, err := store.Lookup(o)
	if err == nil && len(held) > 0 {
		err = &ipam.AlreadyAllocatedError{Owner: o, Addrs: held}
	}
	return err
}

// allocateHere allocates and records addresses on this node. It reads this node's blocks with the addresses locked: the
// agent releases a block after it was with the addresses locked and found the block neither in the file nor in use.
func (f *fairlead) allocateHere(ctx context.Context, o ipam.Owner, n *local.Network, groups []*group) ([]ipam.IP, error) {
	store, err := f.open(ctx, false)
	if err != nil {
		return nil, err
	}
	defer store.Close()
	if err := f.readBlocks(n, groups); err != nil {
		return nil, err
	}
	sets, wanted, err := setsOf(groups)
	if err != nil {
		return nil, err
	}
	for _, g := range groups {
		if !g.ip.IsValid() {
			continue
		}
		if err := f.takeOver(store, o, g); err != nil {
			return nil, err
		}
	}
	if err := f.dir.SetUser(f.network, o, f.name); err != nil {
		return nil, err
	}
	ips, err := f.allocateOrReuse(ctx, store, o, sets, wanted)
	if err != nil {
		if _, held := errors.AsType[*ipam.AlreadyAllocatedError](err); !held {
			err = errors.Join(err, f.dir.DropUser(f.network, o))
		}
	}
	return ips, err
}

func (f *fairlead) allocateOrReuse(ctx context.Context, store *ipam.Store, o ipam.Owner, sets []ipam.RangeSet, wanted []netip.Addr) ([]ipam.IP, error) {
	if plugin.ReusesAddresses(ctx) {
		held, err := store.Release(o) // the lock is held until the store is closed
		if err != nil {
			return nil, err
		}
		if ips, err := store.Allocate(o, sets, append(wanted, without(held, wanted)...)); err == nil {
			return ips, nil
		}
	}
	if f.coolDown == 0 || f.byAgent {
		return store.Allocate(o, sets, wanted)
	}
	cooled, err := f.dir.Cooling(f.network, f.coolDown)
	if err != nil {
		return nil, err
	}
	held, err := store.Lookup(o)
	if err != nil {
		return nil, err
	}
	return store.Allocate(o, excludeCooling(store, sets, cooled, wanted, held), wanted)
}

func without(list, others []netip.Addr) (out []netip.Addr) {
	for _, a := range list {
		found := false
		for _, b := range others {
			found = found || a == b
		}
		if !found {
			out = append(out, a)
		}
	}
	return out
}

// excludeCooling removes recently released addresses from the sets. If nothing else is left, it keeps the oldest of
// them. A set in which the owner holds an address stays as it is, so that Allocate finds that address.
func excludeCooling(store *ipam.Store, sets []ipam.RangeSet, cooled []local.Cooled, wanted, held []netip.Addr) []ipam.RangeSet {
	addrs := coolingAddrs(cooled, wanted)
	out := make([]ipam.RangeSet, len(sets))
	for i, set := range sets {
		if slices.ContainsFunc(held, func(a netip.Addr) bool { _, in := set.Find(a); return in }) {
			out[i] = set
			continue
		}
		out[i] = local.Subtract(set, addrs)
		if len(addrs) == 0 || store.Usable(out[i:i+1]) == nil {
			continue
		}
		out[i] = set
		for _, a := range addrs {
			r, ok := set.Find(a)
			r.Start, r.End = a, a
			if ok && store.Usable([]ipam.RangeSet{{r}}) == nil {
				out[i] = ipam.RangeSet{r}
				break
			}
		}
	}
	return out
}

// coolingAddrs returns the recently released addresses, except requested ones.
func coolingAddrs(cooled []local.Cooled, wanted []netip.Addr) (addrs []netip.Addr) {
	for _, c := range cooled {
		addrs = append(addrs, c.Addr)
	}
	return without(addrs, wanted)
}

// setsOf returns the ranges of each group's address, and the addresses that are known.
func setsOf(groups []*group) (sets []ipam.RangeSet, wanted []netip.Addr, err error) {
	for _, g := range groups {
		set, err := g.set()
		if err != nil {
			return nil, nil, err
		}
		sets = append(sets, set)
		if g.ip.IsValid() {
			wanted = append(wanted, g.ip)
		}
	}
	return sets, wanted, nil
}

// set returns the ranges of a group's address.
func (g *group) set() (set ipam.RangeSet, err error) {
	for _, s := range g.subnets {
		if g.cluster() {
			if s.CIDR.Contains(g.ip) {
				return ipam.RangeSet{{Subnet: s.CIDR, Start: g.ip, End: g.ip, Gateway: g.gatewayIn(s)}}, nil
			}
			continue
		}
		for _, b := range s.Blocks {
			ranges, err := s.Ranges(b)
			if err != nil {
				return nil, err
			}
			set = append(set, ranges...)
		}
	}
	if _, here := set.Find(g.ip); g.ip.IsValid() && !here {
		return nil, cni.Errorf(cni.CodeInvalidNetworkConfig,
			`requested IP %s is in no block of this node (%s): request an address in one of these, or in a subnet with "assign": "cluster"`, g.ip, set)
	}
	return set, nil
}

// gatewayIn returns the configured gateway, or else the subnet's second address.
func (g *group) gatewayIn(s local.Subnet) netip.Addr {
	if g.second {
		return s.CIDR.Addr().Next()
	}
	return g.gateway
}

// takeOver frees an address that the cluster allocated to this container, if it still belongs to an earlier container
// of the same pod on this node.
func (f *fairlead) takeOver(store *ipam.Store, o ipam.Owner, g *group) error {
	if _, err := os.Lstat(filepath.Join(f.dir.Addresses(), f.network, g.ip.String())); !g.cluster() || errors.Is(err, os.ErrNotExist) {
		return nil // the usual case; the code below reads every address file
	}
	_, err := store.FreeIf(func(h ipam.Allocation) bool { return h.Addr == g.ip && h.Owner != o })
	return err
}

// requestBlocks asks the agent for a block for each full group, of the first of its subnets that has one.
func (f *fairlead) requestBlocks(ctx context.Context, groups []*group, why error) error {
	full, err := f.exhausted(ctx, groups)
	if err != nil {
		return err
	}
	for _, g := range full {
		var errs []error
		for _, s := range g.subnets {
			err := f.dir.Call(ctx, local.OpBlock, local.BlockArgs{Network: f.network, Subnets: []netip.Prefix{s.CIDR}}, nil)
			if err == nil {
				errs = nil
				break
			}
			errs = append(errs, fmt.Errorf("requesting another block of %s failed: %w", s.CIDR, err))
		}
		if len(errs) > 0 {
			return fmt.Errorf("%w; %w", noneLeft(why), errors.Join(errs...))
		}
	}
	return nil
}

// readBlocks reads this node's blocks again, unless the agent allocates all addresses.
func (f *fairlead) readBlocks(n *local.Network, groups []*group) error {
	if !slices.ContainsFunc(groups, func(g *group) bool { return !g.cluster() }) {
		return nil
	}
	now, err := f.dir.Read(f.network)
	if err != nil {
		return err
	}
	*n = *now
	for _, g := range groups {
		for i := range g.subnets {
			for _, s := range now.Subnets {
				if s.CIDR == g.subnets[i].CIDR {
					g.subnets[i] = s
				}
			}
		}
	}
	return nil
}

// noneLeft returns err without ErrExhausted, because another try would not help.
func noneLeft(err error) error { return errors.New(err.Error()) }

// exhausted returns the groups in which this node has no free address.
func (f *fairlead) exhausted(ctx context.Context, groups []*group) (list []*group, err error) {
	store, err := f.open(ctx, false)
	if err != nil {
		return nil, err
	}
	defer store.Close()
	for _, g := range groups {
		if g.cluster() || g.ip.IsValid() {
			continue
		}
		set, err := g.set()
		if err != nil {
			return nil, err
		}
		if store.Usable([]ipam.RangeSet{set}) != nil {
			list = append(list, g)
		}
	}
	return list, nil
}
