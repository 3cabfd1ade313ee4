package docker

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/ipam"
	"github.com/fairlead/fairlead/kernel"
)

// pool is a pool of addresses. The addresses themselves are in a directory of package ipam.
type pool struct {
	ID      string
	Subnet  netip.Prefix
	Sub     netip.Prefix `json:",omitzero"` // the part from which addresses are chosen; zero: all
	Gateway netip.Addr   `json:",omitzero"`
	Aux     []netip.Addr `json:",omitempty"` // other hosts have them; dockerd requests them once, and not after a reboot
	Network string       `json:",omitempty"` // the network of the cluster that assigns the addresses; "": the driver does
	Choice  string       `json:",omitempty"` // the name of the subnet in that network
	Users   int          `json:",omitempty"` // how often it was requested and not released, less one
}

func (d *Driver) addressCapabilities(context.Context, *none) (any, error) {
	return map[string]bool{"RequiresMACAddress": false, "RequiresRequestReplay": false}, nil
}

func (d *Driver) addressSpaces(context.Context, *none) (any, error) {
	return map[string]string{"LocalDefaultAddressSpace": "fairlead", "GlobalDefaultAddressSpace": "fairlead"}, nil
}

// requestPool reserves a subnet. dockerd repeats a call whose reply it did not get. That looks like the request of another
// network, so such a pool is counted. CreateNetwork rejects the second network.
func (d *Driver) requestPool(ctx context.Context, q *poolRequest) (any, error) {
	d.poolLock.Lock()
	defer d.poolLock.Unlock()
	p := &pool{}
	for key, value := range q.Options {
		if key != networkOption {
			return nil, fmt.Errorf("--ipam-opt %s: this IPAM driver has no such option: want %s", key, networkOption)
		}
		p.Network = value
	}
	err := p.parse(q)
	switch {
	case err != nil:
	case p.Network != "":
		err = p.join(ctx)
	case q.Pool == "":
		p.Subnet, err = d.freeSubnet(q.V6)
	}
	if err != nil {
		return nil, err
	}
	p.ID = p.id()
	if other := d.overlapping(p); other != nil {
		if other.ID != p.ID || !d.unused(other) {
			return nil, fmt.Errorf("subnet %s overlaps with %s, which another network has", p.Subnet, other.Subnet)
		}
		p.Users = other.Users + 1
	}
	if err := d.pools.write(p.ID, p); err != nil {
		return nil, err
	}
	return poolResponse{PoolID: p.ID, Pool: p.Subnet.String(), Data: map[string]string{}}, nil
}

func (p *pool) parse(q *poolRequest) (err error) {
	if q.Pool == "" {
		if q.SubPool != "" {
			return fmt.Errorf("--ip-range %s needs a --subnet", q.SubPool)
		}
		return nil
	}
	if p.Subnet, err = netip.ParsePrefix(q.Pool); err != nil || p.Subnet != p.Subnet.Masked() {
		return fmt.Errorf("--subnet %s: want a subnet, like 10.1.0.0/16", q.Pool)
	}
	if _, err := (ipam.Range{Subnet: p.Subnet}).Complete(); err != nil {
		if e, ok := errors.AsType[*ipam.FieldError](err); ok {
			err = errors.New(e.Problem)
		}
		return fmt.Errorf("--subnet %s: %w", q.Pool, err)
	}
	if q.SubPool == "" {
		return nil
	}
	if p.Sub, err = netip.ParsePrefix(q.SubPool); err != nil {
		return fmt.Errorf("--ip-range %s: want a range within the subnet, like 10.1.2.0/24", q.SubPool)
	}
	p.Sub = p.Sub.Masked()
	if !p.Subnet.Contains(p.Sub.Addr()) || p.Sub.Bits() < p.Subnet.Bits() {
		return fmt.Errorf("--ip-range %s is not within the subnet %s", q.SubPool, p.Subnet)
	}
	if _, err := p.ranges(false); err != nil {
		return fmt.Errorf("--ip-range %s has only the network or the broadcast address of the subnet %s", q.SubPool, p.Subnet)
	}
	return nil
}

// id returns the ID of a pool, which is also the name of its files.
func (p *pool) id() string {
	id := p.Subnet.String()
	if p.Sub.IsValid() {
		id += "_" + p.Sub.String()
	}
	if p.Network != "" {
		id = p.Network + "_" + id
	}
	return strings.NewReplacer("/", "-", ":", ".").Replace(id)
}

// overlapping returns another pool with addresses of p. Those of two networks of the cluster may be equal.
func (d *Driver) overlapping(p *pool) *pool {
	for _, id := range d.pools.ids() {
		other, err := d.pools.read(id)
		apart := err == nil && p.Network != "" && other.Network != "" && p.Network != other.Network
		if err == nil && !apart && p.Subnet.Overlaps(other.Subnet) {
			return other
		}
	}
	return nil
}

// unused reports whether no address of a pool was ever requested.
func (d *Driver) unused(p *pool) bool {
	all, err := ipam.Allocations(d.addressDir(), p.ID)
	return err == nil && len(all) == 0 && !p.Gateway.IsValid()
}

func (d *Driver) addressDir() string {
	return filepath.Join(d.o.LibDir, "fairlead", "docker", "addresses")
}

// Subnets that the driver chooses from: a part of RFC 1918, and of RFC 4193 with the global ID 666c000000.
func choices(v6 bool) (first netip.Prefix, next func(netip.Prefix) netip.Prefix, count int) {
	if v6 {
		return netip.MustParsePrefix("fd66:6c00::/64"), func(p netip.Prefix) netip.Prefix {
			b := p.Addr().As16()
			if b[7]++; b[7] == 0 {
				b[6]++
			}
			return netip.PrefixFrom(netip.AddrFrom16(b), 64)
		}, 1 << 16
	}
	return netip.MustParsePrefix("10.208.0.0/24"), func(p netip.Prefix) netip.Prefix {
		b := p.Addr().As4()
		if b[2]++; b[2] == 0 {
			b[1]++
		}
		return netip.PrefixFrom(netip.AddrFrom4(b), 24)
	}, 1 << 12
}

// freeSubnet returns a subnet that no pool has and that the host has no route to.
func (d *Driver) freeSubnet(v6 bool) (netip.Prefix, error) {
	e, err := kernel.Open(nil, kernel.Options{})
	if err != nil {
		return netip.Prefix{}, err
	}
	defer e.Close()
	family := byte(kernel.IPv4)
	if v6 {
		family = kernel.IPv6
	}
	routes, err := e.Routes(kernel.Host, family, kernel.MainTable)
	if err != nil {
		return netip.Prefix{}, err
	}
	p, next, count := choices(v6)
	for range count {
		free := d.overlapping(&pool{Subnet: p}) == nil
		for _, r := range routes {
			free = free && (r.Dst.Bits() == 0 || !r.Dst.Overlaps(p))
		}
		if free {
			return p, nil
		}
		p = next(p)
	}
	return netip.Prefix{}, errors.New("no subnet is free: choose one with --subnet")
}

func (d *Driver) releasePool(_ context.Context, q *releasePoolRequest) (any, error) {
	d.poolLock.Lock()
	defer d.poolLock.Unlock()
	p, err := d.poolOf(q.PoolID)
	switch {
	case err != nil: // dockerd releases it twice, or it is from before this driver's files were lost
		return none{}, nil
	case p.Users > 0:
		p.Users--
		return none{}, d.pools.write(p.ID, p)
	}
	return none{}, d.dropPool(q.PoolID)
}

// dropPool forgets a pool and all its addresses.
func (d *Driver) dropPool(id string) error {
	return errors.Join(
		os.RemoveAll(filepath.Join(d.addressDir(), id)), os.RemoveAll(filepath.Join(d.addressDir(), ".fairlead", id)),
		d.pools.remove(id))
}

// checkOverlap rejects a network with a pool of this IPAM driver that another network has. dockerd may have requested the
// pool for both before either was created.
func (d *Driver) checkOverlap(n, other *network) error {
	for _, id := range d.pools.ids() {
		p, err := d.pools.read(id)
		if err != nil || p.Network != "" || !n.has(p.Subnet) || !other.has(p.Subnet) {
			continue
		}
		return fmt.Errorf("subnet %s overlaps with the subnet of Docker's network %s", p.Subnet, other.ID)
	}
	return nil
}

func (n *network) has(p netip.Prefix) bool {
	return slices.ContainsFunc(n.Subnets, func(s subnet) bool { return s.Pool == p })
}

// keepAux notes the auxiliary addresses of a network in its pools.
func (d *Driver) keepAux(pools []poolData) error {
	d.poolLock.Lock()
	defer d.poolLock.Unlock()
	for _, data := range pools {
		var aux []netip.Addr
		for name, text := range data.AuxAddresses {
			a, err := netip.ParsePrefix(text)
			if err != nil {
				return fmt.Errorf("auxiliary address %s=%q of pool %s: want an address with its prefix length, like 10.1.0.2/16", name, text, data.Pool)
			}
			aux = append(aux, a.Addr())
		}
		if len(aux) == 0 {
			continue
		}
		slices.SortFunc(aux, netip.Addr.Compare)
		for _, id := range d.pools.ids() {
			p, err := d.pools.read(id)
			if err != nil || p.Network != "" || p.Subnet.String() != data.Pool || slices.Equal(p.Aux, aux) {
				continue
			}
			p.Aux = aux
			if err := d.pools.write(id, p); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *Driver) poolOf(id string) (*pool, error) {
	if id == "" || strings.ContainsAny(id, "/") || strings.HasPrefix(id, ".") {
		return nil, fmt.Errorf("PoolID %q: want the ID of a pool", id)
	}
	p, err := d.pools.read(id)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("there is no pool %s: remove its network and create it again", id)
	}
	return p, err
}
