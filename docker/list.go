package docker

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/libcni"
)

// list returns the plugins that attach an endpoint to the network.
func (n *network) list(i endpointInterface) (*libcni.NetworkConfigList, error) {
	p, args := maps.Clone(n.Plugin), map[string]any{}
	if i.MacAddress != "" {
		if n.sharesMAC() {
			return nil, fmt.Errorf("--mac-address %s: a container on a network of type %s has the hardware address of its parent", i.MacAddress, n.Type)
		}
		args["mac"] = i.MacAddress
	}
	ips, err := n.addresses(i)
	if err != nil {
		return nil, err
	}
	switch {
	case len(ips) == 0:
	case n.Type == typeCluster:
		args["ips"] = hosts(ips)
	default:
		p["ipam"] = map[string]any{"type": "static", "addresses": ips}
	}
	if len(args) > 0 {
		p["args"] = map[string]any{"cni": args}
	}
	plugins := []any{p}
	// With the plugin firewall, a firewall that drops forwarded packets, such as Docker's own, lets this network's packets
	// through. An isolated network has a namespace of its own.
	switch {
	case n.Type == typeBridge:
		plugins = append(plugins, map[string]any{"type": "firewall", "ingressPolicy": "same-bridge"})
	case n.Type == typeCluster && p["type"] != "fairlead-net":
		plugins = append(plugins, map[string]any{"type": "firewall"})
	}
	raw, err := json.Marshal(map[string]any{"cniVersion": cni.Current, "name": n.Name, "plugins": plugins})
	if err != nil {
		return nil, err
	}
	return libcni.ConfListFromBytes(raw)
}

// sharesMAC reports whether the network's containers have the hardware address of their parent.
func (n *network) sharesMAC() bool { return n.Type == "ipvlan" || n.Type == "vlan" }

// routesWithoutGateway reports whether the network forwards packets without a gateway: ipvlan in the modes of layer 3.
func (n *network) routesWithoutGateway() bool {
	return n.Type == "ipvlan" && (n.Plugin["mode"] == "l3" || n.Plugin["mode"] == "l3s")
}

// staticAddress is an element of "addresses" of the plugin static.
type staticAddress struct {
	Address netip.Prefix `json:"address"`
	Gateway netip.Addr   `json:"gateway,omitzero"`
}

// addresses returns the addresses that Docker chose, with the gateways of their pools.
func (n *network) addresses(i endpointInterface) (out []staticAddress, err error) {
	for _, text := range []string{i.Address, i.AddressIPv6} {
		if text == "" {
			continue
		}
		var a staticAddress
		if a.Address, err = netip.ParsePrefix(text); err != nil {
			return nil, fmt.Errorf("address %q: want an address with its prefix length, like 10.1.0.5/16", text)
		}
		for _, s := range n.Subnets {
			if s.Pool.Contains(a.Address.Addr()) && !n.Internal && !n.routesWithoutGateway() {
				a.Gateway = s.Gateway
			}
		}
		out = append(out, a)
	}
	return out, nil
}

func hosts(ips []staticAddress) (out []netip.Addr) {
	for _, ip := range ips {
		out = append(out, ip.Address.Addr())
	}
	return out
}
