package docker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/fairlead/fairlead/ipam"
)

// requestAddress allocates an address. The gateway of a pool is no allocation: it is never assigned.
func (d *Driver) requestAddress(ctx context.Context, q *addressRequest) (any, error) {
	p, err := d.poolOf(q.PoolID)
	if err != nil {
		return nil, err
	}
	var wanted []netip.Addr
	if q.Address != "" {
		a, err := netip.ParseAddr(q.Address)
		if err != nil || !p.Subnet.Contains(a.Unmap()) {
			return nil, fmt.Errorf("address %s: want an address of the subnet %s", q.Address, p.Subnet)
		}
		wanted = []netip.Addr{a.Unmap()}
	}
	if q.Options[requestTypeKey] == gatewayAddress {
		return d.setGateway(p.ID, wanted)
	}
	if p.Network != "" {
		return d.reserve(ctx, p, wanted)
	}
	set, err := p.ranges(len(wanted) > 0)
	if err != nil {
		return nil, err
	}
	store, err := ipam.Open(ctx, d.addressDir(), p.ID, ipam.Options{})
	if err != nil {
		return nil, err
	}
	defer store.Close()
	ips, err := store.Allocate(ipam.Owner{ContainerID: rand.Text(), IfName: "docker"}, []ipam.RangeSet{set}, wanted)
	if err != nil {
		return nil, err
	}
	return p.response(ips[0].Address.Addr()), nil
}

func (p *pool) response(a netip.Addr) addressResponse {
	return addressResponse{netip.PrefixFrom(a, p.Subnet.Bits()).String(), map[string]string{}}
}

// ranges returns the addresses to choose from, which auxiliary addresses divide. A fixed address may be outside the pool's
// part.
func (p *pool) ranges(fixed bool) (ipam.RangeSet, error) {
	r := ipam.Range{Subnet: p.Subnet, Gateway: p.Gateway}
	if p.Sub.IsValid() && !fixed {
		r.Start, r.End = p.Sub.Addr(), ipam.LastOf(p.Sub)
		if usual, err := (ipam.Range{Subnet: p.Subnet}).Complete(); err == nil {
			r.Start, r.End = later(r.Start, usual.Start), earlier(r.End, usual.End)
		}
	}
	r, err := r.Complete()
	if err != nil {
		return nil, err
	}
	set := without(r, p.Aux)
	if len(set) == 0 {
		return nil, fmt.Errorf("no IP addresses available in %s: all are auxiliary addresses", r)
	}
	sets, err := ipam.CompleteSets([]ipam.RangeSet{set})
	if err != nil {
		return nil, err
	}
	return sets[0], nil
}

// without divides a range at some of its addresses, which are sorted.
func without(r ipam.Range, addrs []netip.Addr) (out ipam.RangeSet) {
	for _, a := range addrs {
		if a.Less(r.Start) || r.End.Less(a) {
			continue
		}
		if before := r; r.Start.Less(a) {
			before.End = a.Prev()
			out = append(out, before)
		}
		if a == r.End {
			return out
		}
		r.Start = a.Next()
	}
	return append(out, r)
}

func later(a, b netip.Addr) netip.Addr {
	if a.Less(b) {
		return b
	}
	return a
}

func earlier(a, b netip.Addr) netip.Addr {
	if a.Less(b) {
		return a
	}
	return b
}

// setGateway notes the address of a pool's gateway. dockerd asks for it before any other address.
func (d *Driver) setGateway(id string, wanted []netip.Addr) (any, error) {
	d.poolLock.Lock()
	defer d.poolLock.Unlock()
	p, err := d.poolOf(id)
	if err != nil {
		return nil, err
	}
	gateway := p.Subnet.Addr().Next()
	if len(wanted) > 0 {
		gateway = wanted[0]
	}
	if gateway == p.Subnet.Addr() || gateway.Is4() && gateway == ipam.LastOf(p.Subnet) {
		return nil, fmt.Errorf("--gateway %s: the network or the broadcast address of the subnet %s is no gateway", gateway, p.Subnet)
	}
	if p.Network != "" && gateway != p.Subnet.Addr().Next() {
		return nil, fmt.Errorf("--gateway %s: the cluster chooses the gateway of each host", gateway)
	}
	if p.Gateway.IsValid() && p.Gateway != gateway {
		return nil, fmt.Errorf("gateway %s: pool %s has the gateway %s already", gateway, p.ID, p.Gateway)
	}
	p.Gateway = gateway
	if _, err := p.ranges(false); err != nil {
		return nil, err
	}
	return p.response(gateway), d.pools.write(p.ID, p)
}

// releaseAddress frees an address. One that is free already is success.
func (d *Driver) releaseAddress(ctx context.Context, q *addressRequest) (any, error) {
	p, err := d.poolOf(q.PoolID)
	if err != nil {
		return none{}, nil // the pool is gone, and its addresses with it
	}
	a, err := netip.ParseAddr(q.Address)
	if err != nil {
		return nil, fmt.Errorf("address %q: want an address", q.Address)
	}
	if p.Network != "" { // the endpoint has released the address, if there was one
		return none{}, d.unreserve(ctx, func(r *reservation) bool { return r.Pool == p.ID && r.Address == a.Unmap() })
	}
	return none{}, d.free(ctx, p.ID, func(x ipam.Allocation) bool { return x.Addr == a.Unmap() })
}

// free frees the addresses of a pool that match.
func (d *Driver) free(ctx context.Context, id string, match func(ipam.Allocation) bool) error {
	store, err := ipam.Open(ctx, d.addressDir(), id, ipam.Options{Existing: true})
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer store.Close()
	_, err = store.FreeIf(match)
	return err
}
