package docker

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/invoke"
	"github.com/fairlead/fairlead/cni/wire"
)

const (
	networkOption = "network" // of the IPAM driver
	clusterIPAM   = "fairlead-ipam"
)

// reservation is an address of a network of the cluster that dockerd has requested for an endpoint which does not exist
// yet. It is an attachment of clusterIPAM. CreateEndpoint releases it and requests the same address for the endpoint.
type reservation struct {
	ID      string // as the container's
	Pool    string
	Network string     // of the cluster
	Address netip.Addr `json:",omitzero"`
}

// join finds the subnet of a pool in the network of the cluster.
func (p *pool) join(ctx context.Context) error {
	if p.Sub.IsValid() || !p.Subnet.IsValid() {
		return fmt.Errorf("--ipam-opt %s=%s: want a --subnet of this network, and no --ip-range", networkOption, p.Network)
	}
	dir := local.Open("", "")
	n, err := dir.Read(p.Network)
	if errors.Is(err, os.ErrNotExist) {
		err = dir.Call(ctx, local.OpBlock, local.BlockArgs{Network: p.Network}, nil)
		if err == nil {
			n, err = dir.Read(p.Network)
		}
	}
	if err != nil {
		return fmt.Errorf("--ipam-opt %s=%s: %w", networkOption, p.Network, err)
	}
	var have []string
	for _, s := range n.Subnets {
		if s.CIDR == p.Subnet {
			p.Choice = s.Name
			return nil
		}
		have = append(have, s.CIDR.String())
	}
	return fmt.Errorf("--subnet %s: network %s of the cluster has the subnets %s", p.Subnet, p.Network, strings.Join(have, ", "))
}

// choice returns the element of "addresses" of clusterIPAM that selects the pool.
func (p *pool) choice() map[string]any {
	family := 6
	if p.Subnet.Addr().Is4() {
		family = 4
	}
	return map[string]any{"pool": p.Choice, "family": family}
}

// checkPools checks that the pools of a network of type cluster are the cluster's, and selects them.
func (d *Driver) checkPools(n *network) error {
	if n.Type != typeCluster || len(n.Subnets) == 0 {
		return nil
	}
	var choices []any
	for _, s := range n.Subnets {
		for _, id := range d.pools.ids() {
			if p, err := d.pools.read(id); err == nil && p.Subnet == s.Pool && p.Network == n.Cluster {
				choices = append(choices, p.choice())
			}
		}
	}
	if len(choices) < len(n.Subnets) {
		return fmt.Errorf("the cluster assigns the addresses of a network of type cluster: create it with --ipam-driver null, or, "+
			"for --ip, with --ipam-driver fairlead, --ipam-opt %s=%s and the --subnet of that network", networkOption, n.Cluster)
	}
	ipam, _ := n.Plugin["ipam"].(map[string]any)
	ipam["addresses"] = choices
	return nil
}

// reserve reserves an address until CreateEndpoint.
func (d *Driver) reserve(ctx context.Context, p *pool, wanted []netip.Addr) (any, error) {
	r := &reservation{ID: rand.Text(), Pool: p.ID, Network: p.Network}
	if err := d.reserved.write(r.ID, r); err != nil {
		return nil, err
	}
	if err := d.reserveAs(ctx, r, p, wanted); err != nil {
		return nil, errors.Join(err, d.unreserve(ctx, func(x *reservation) bool { return x.ID == r.ID }))
	}
	// The container reaches the rest of the subnet through its gateway.
	return addressResponse{netip.PrefixFrom(r.Address, r.Address.BitLen()).String(), map[string]string{}}, nil
}

func (d *Driver) reserveAs(ctx context.Context, r *reservation, p *pool, wanted []netip.Addr) error {
	raw, err := d.runIPAM(ctx, "ADD", r.ID, p, wanted)
	if err != nil {
		return err
	}
	res, err := wire.Decode(cni.Current, raw)
	if err != nil {
		return err
	}
	if len(res.IPs) != 1 {
		return fmt.Errorf("%s returns %d addresses: want one", clusterIPAM, len(res.IPs))
	}
	r.Address = res.IPs[0].Address.Addr()
	return d.reserved.write(r.ID, r)
}

// unreserve releases the reservations that match.
func (d *Driver) unreserve(ctx context.Context, match func(*reservation) bool) error {
	var errs []error
	for _, id := range d.reserved.ids() {
		r, err := d.reserved.read(id)
		if err != nil || !match(r) {
			continue // another call has released it
		}
		p, err := d.pools.read(r.Pool)
		if errors.Is(err, os.ErrNotExist) { // Docker's network was removed first: DEL needs only the cluster's network
			p, err = &pool{ID: r.Pool, Network: r.Network}, nil
		}
		if err == nil {
			_, err = d.runIPAM(ctx, "DEL", id, p, nil)
		}
		if err == nil {
			err = d.reserved.remove(id)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// reserved returns a function that matches the reservations of the addresses of an endpoint.
func (n *network) reserved(i endpointInterface) func(*reservation) bool {
	ips, _ := n.addresses(i) // an invalid one has no reservation
	return func(r *reservation) bool {
		return r.Network == n.Cluster && slices.Contains(hosts(ips), r.Address)
	}
}

// runIPAM runs clusterIPAM for a reservation.
func (d *Driver) runIPAM(ctx context.Context, command, id string, p *pool, wanted []netip.Addr) ([]byte, error) {
	exec, path, err := d.find(clusterIPAM)
	if err != nil {
		return nil, err
	}
	conf, err := json.Marshal(map[string]any{
		"cniVersion": cni.Current, "name": "docker-" + p.ID, "type": clusterIPAM,
		"ipam":          map[string]any{"type": clusterIPAM, "network": p.Network, "addresses": []any{p.choice()}},
		"runtimeConfig": map[string]any{"ips": wanted},
	})
	if err != nil {
		return nil, err
	}
	args := &invoke.Args{
		Command: command, ContainerID: id, NetNS: d.hostPath(), IfName: "docker",
		Path: strings.Join(d.o.Path, string(filepath.ListSeparator)),
	}
	return exec.ExecPlugin(ctx, path, conf, append(args.AsEnv(), "CNI_NETNS_OVERRIDE=1"))
}
