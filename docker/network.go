package docker

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/plugins/ovs"
	"github.com/fairlead/fairlead/plugins/ruleset"
)

// network is a network of Docker.
type network struct {
	ID       string
	Name     string // as Fairlead's tools show it
	Type     string
	Internal bool
	Plugin   map[string]any // keys of the plugin's configuration
	Subnets  []subnet       `json:",omitempty"`
	Cluster  string         `json:",omitempty"` // the network of the cluster, for this type
	Bridge   string         `json:",omitempty"` // the bridge that the network creates, and removes at its end
}

// subnet is a pool of a network.
type subnet struct {
	Pool    netip.Prefix
	Gateway netip.Addr `json:",omitzero"`
}

func (d *Driver) createNetwork(_ context.Context, q *networkRequest) (any, error) {
	n, err := newNetwork(q)
	if err != nil {
		return nil, err
	}
	if err := d.checkPools(n); err != nil {
		return nil, err
	}
	defer d.locks.lock(networksLock)()
	for _, id := range d.networks.ids() {
		other, err := d.networks.read(id)
		if err != nil {
			continue // its file is damaged
		}
		if other.ID == n.ID { // dockerd repeats the call, and the bridge exists by now
			if other.Bridge == n.text("bridge") {
				n.Bridge = other.Bridge
			}
			continue
		}
		if other.Name == n.Name {
			return nil, fmt.Errorf("option name=%s: Docker's network %s has this name already", n.Name, other.ID)
		}
		if err := d.checkOverlap(n, other); err != nil {
			return nil, err
		}
	}
	if err := n.check(); err != nil {
		return nil, err
	}
	if err := n.ownBridge(); err != nil {
		return nil, err
	}
	if err := d.keepAux(slices.Concat(q.IPv4Data, q.IPv6Data)); err != nil {
		return nil, err
	}
	return none{}, d.networks.write(n.ID, n)
}

// networksLock is the name of the lock for changes of the list of networks. IDs have no space.
const networksLock = "the networks"

func newNetwork(q *networkRequest) (*network, error) {
	if err := checkID("NetworkID", q.NetworkID); err != nil {
		return nil, err
	}
	options, err := userOptions(q.Options)
	if err != nil {
		return nil, err
	}
	t, err := typeOf(options)
	if err != nil {
		return nil, err
	}
	n := &network{ID: q.NetworkID, Name: options[nameKey], Type: t.name}
	if n.Name == "" {
		n.Name = "docker-" + short(q.NetworkID)
	}
	if err := cni.ValidateNetworkName(n.Name); err != nil {
		return nil, fmt.Errorf("option name=%s: %w", n.Name, err)
	}
	if n.Internal, err = isInternal(q.Options); err != nil {
		return nil, err
	}
	if n.Plugin, err = t.parse(options); err != nil {
		return nil, err
	}
	if n.Subnets, err = parsePools(slices.Concat(q.IPv4Data, q.IPv6Data)); err != nil {
		return nil, err
	}
	return n, n.complete(t)
}

// text returns a key of the plugin's configuration, or "" if it is not set.
func (n *network) text(key string) string {
	s, _ := n.Plugin[key].(string)
	return s
}

func short(id string) string { return id[:min(len(id), 12)] }

// complete sets the defaults of a type.
func (n *network) complete(t *networkType) error {
	usual := func(key string, v any) {
		if _, set := n.Plugin[key]; !set {
			n.Plugin[key] = v
		}
	}
	n.Plugin["type"] = t.plugin
	switch t.name {
	case typeBridge:
		usual("bridge", "fl-"+short(n.ID))
		usual("ipMasq", !n.Internal)
		usual("isGateway", !n.Internal && len(n.Subnets) > 0)
	case typeCluster:
		return n.completeCluster(usual)
	}
	return nil
}

// completeCluster chooses the plugin of a network of the cluster, whose addresses the cluster assigns.
func (n *network) completeCluster(usual func(string, any)) error {
	usual("network", defaultNetwork)
	name := n.text("network")
	n.Cluster = name
	n.Plugin["type"], n.Plugin["ipam"] = "fairlead-net", map[string]any{"type": clusterIPAM, "network": name}
	if name == defaultNetwork {
		n.Plugin["type"] = "ptp"
		delete(n.Plugin, "network")
	}
	return nil
}

// defaultNetwork is the network of the cluster that every host is on.
const defaultNetwork = "default"

// parsePools parses the pools of a network. Docker's IPAM driver null has the pool 0.0.0.0/0 and assigns no addresses.
func parsePools(pools []poolData) (out []subnet, err error) {
	for _, p := range pools {
		var s subnet
		if s.Pool, err = netip.ParsePrefix(p.Pool); err != nil {
			return nil, fmt.Errorf("pool %q: want a subnet, like 10.1.0.0/16", p.Pool)
		}
		if s.Pool.Bits() == 0 {
			continue
		}
		if p.Gateway != "" {
			gw, err := netip.ParsePrefix(p.Gateway)
			if err != nil {
				return nil, fmt.Errorf("gateway %q of pool %s: want an address with its prefix length, like 10.1.0.1/16", p.Gateway, p.Pool)
			}
			s.Gateway = gw.Addr()
		}
		out = append(out, s)
	}
	return out, nil
}

// ownBridge notes whether the network's bridge does not exist yet: then the network creates it.
func (n *network) ownBridge() error {
	name := n.text("bridge")
	if n.Type != typeBridge {
		return nil
	}
	if err := cni.ValidateInterfaceName(name); err != nil {
		return fmt.Errorf("option bridge=%s: %w", name, err)
	}
	e, err := kernel.Open(nil, kernel.Options{})
	if err != nil {
		return err
	}
	defer e.Close()
	l, err := e.Link(kernel.Host, name)
	switch {
	case errors.Is(err, os.ErrNotExist):
		n.Bridge = name
		return nil
	case err == nil && l.Kind != "bridge":
		return fmt.Errorf("option bridge=%s: there is a link with this name, and it is not a bridge", name)
	}
	return err
}

func (d *Driver) allocateNetwork(context.Context, *networkRequest) (any, error) {
	return map[string]map[string]string{"Options": {}}, nil
}

// deleteNetwork removes a network, and endpoints that Docker has forgotten.
func (d *Driver) deleteNetwork(ctx context.Context, q *networkRequest) (any, error) {
	if err := checkID("NetworkID", q.NetworkID); err != nil {
		return nil, err
	}
	for _, id := range d.endpoints.ids() {
		if e, err := d.endpoints.read(id); err == nil && e.NetworkID == q.NetworkID {
			if err := d.remove(ctx, id); err != nil {
				return nil, err
			}
		}
	}
	defer d.locks.lock(networksLock)()
	n, err := d.networks.read(q.NetworkID)
	if errors.Is(err, os.ErrNotExist) {
		return none{}, nil
	}
	if err == nil { // otherwise its file is damaged
		if err := d.removeShared(ctx, n); err != nil {
			return nil, err
		}
	}
	return none{}, d.networks.remove(q.NetworkID)
}

// removeShared removes what the endpoints of a network shared.
func (d *Driver) removeShared(ctx context.Context, n *network) error {
	switch {
	case n.Bridge != "":
		return d.leaveBridge(n)
	case n.Type == typeOVS:
		return ovs.RemoveNetwork(ctx, n.text("socket_file"), n.Name, n.text("bridge"))
	}
	return nil
}

// leaveBridge removes the bridge that a network created, and its rules. If another network uses the bridge, that network
// owns it from then on.
func (d *Driver) leaveBridge(n *network) error {
	for _, id := range d.networks.ids() {
		other, err := d.networks.read(id)
		if err == nil && other.ID != n.ID && other.Type == typeBridge && other.Plugin["bridge"] == n.Bridge {
			other.Bridge = n.Bridge
			return d.networks.write(id, other)
		}
	}
	if err := kernel.RemoveBridge(n.Bridge); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove bridge %s: %w", n.Bridge, err)
	}
	e, err := kernel.Open(nil, kernel.Options{})
	if err != nil {
		return err
	}
	defer e.Close()
	if _, err := ruleset.RemoveIngress(e, func(bridge string) bool { return bridge == n.Bridge }, false); err != nil {
		return fmt.Errorf("remove the rules of bridge %s: %w", n.Bridge, err)
	}
	return nil
}

// networkOf returns the network of a request.
func (d *Driver) networkOf(id string) (*network, error) {
	if err := checkID("NetworkID", id); err != nil {
		return nil, err
	}
	n, err := d.networks.read(id)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("network %s is not a network of this driver: remove it and create it again (docker network rm, docker network create)", id)
	}
	return n, err
}
