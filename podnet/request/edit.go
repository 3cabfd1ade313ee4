package request

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/rawjson"
	"github.com/fairlead/fairlead/internal/hwaddr"
)

// WithArgs adds a pod's arguments to args.cni.
func WithArgs(args map[string]any) func(*rawjson.Object) error {
	return func(plugin *rawjson.Object) error {
		all, err := object(plugin, "args")
		if err != nil {
			return err
		}
		within, err := object(all, "cni")
		if err != nil {
			return err
		}
		for _, key := range sortedKeys(args) {
			raw, err := json.Marshal(args[key])
			if err != nil {
				return fmt.Errorf("args.cni.%s: %w", key, err)
			}
			within.Set(key, raw)
		}
		all.Set("cni", within.Bytes())
		plugin.Set("args", all.Bytes())
		return nil
	}
}

// MergeArgs adds the args of one configuration to those of another. Keys of args.cni that only the other has stay.
func MergeArgs(into, from *rawjson.Object) error {
	add, err := object(from, "args")
	if err != nil {
		return err
	}
	addCNI, err := object(add, "cni")
	if err != nil {
		return fmt.Errorf("args.%w", err)
	}
	all, err := object(into, "args")
	if err != nil {
		return err
	}
	within, err := object(all, "cni")
	if err != nil {
		return fmt.Errorf("args.%w", err)
	}
	for key, raw := range addCNI.All() {
		within.Set(key, raw)
	}
	for key, raw := range add.All() {
		all.Set(key, raw)
	}
	if within.Len() > 0 {
		all.Set("cni", within.Bytes())
	}
	into.Set("args", all.Bytes())
	return nil
}

// object returns the object at a key, or an empty one.
func object(o *rawjson.Object, key string) (*rawjson.Object, error) {
	raw, ok := o.Get(key)
	if !ok || string(raw) == "null" {
		raw = []byte("{}")
	}
	in, err := rawjson.ParseObject(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	return in, nil
}

// routed returns the IPAM types whose configuration lists the routes.
func routed() []string { return []string{"host-local", "static", "whereabouts", "fairlead-ipam"} }

// WithDefaultRoute makes the network the pod's default route through the gateways. With an empty list, the network keeps
// the default route of its configuration. With nil, it loses it.
func WithDefaultRoute(gateways []netip.Addr) func(*rawjson.Object) error {
	keep := gateways != nil && len(gateways) == 0
	return func(plugin *rawjson.Object) error {
		if raw, ok := plugin.Get("isDefaultGateway"); ok && string(raw) == "true" && !keep {
			plugin.Set("isDefaultGateway", []byte("false")) // otherwise the plugin would add its own default route
			plugin.Set("isGateway", []byte("true"))         // isDefaultGateway implied it
		}
		addr, err := object(plugin, "ipam")
		if err != nil || !slices.Contains(routed(), addr.String("type")) {
			return err // CheckRoutes checks the result
		}
		if _, listed := addr.Get("routes"); !listed && addr.String("type") == "fairlead-ipam" && len(gateways) == 0 {
			addr.Set("defaultRoute", strconv.AppendBool(nil, keep)) // the routes to the cluster's networks stay
			plugin.Set("ipam", addr.Bytes())
			return nil
		}
		if keep {
			return nil
		}
		routes, err := otherRoutes(addr)
		if err != nil {
			return err
		}
		for _, gw := range gateways {
			raw, err := json.Marshal(map[string]string{"dst": everywhere(gw).String(), "gw": gw.String()})
			if err != nil {
				return err
			}
			routes = append(routes, raw)
		}
		addr.SetArray("routes", routes)
		plugin.Set("ipam", addr.Bytes())
		return nil
	}
}

// otherRoutes returns the routes of an IPAM configuration that are not default routes, unchanged.
func otherRoutes(addr *rawjson.Object) (out [][]byte, err error) {
	raw, ok := addr.Get("routes")
	if !ok || string(raw) == "null" {
		return nil, nil
	}
	elements, err := rawjson.Elements(raw)
	if err != nil {
		return nil, fmt.Errorf("ipam.routes: %w", err)
	}
	for _, e := range elements {
		if !IsDefaultRoute(e.Raw) {
			out = append(out, e.Raw)
		}
	}
	return out, nil
}

// IsDefaultRoute reports whether a route of a configuration is a default route.
func IsDefaultRoute(route []byte) bool {
	o, err := rawjson.ParseObject(route)
	if err != nil {
		return false
	}
	dst, err := netip.ParsePrefix(o.String("dst"))
	return err == nil && dst.Bits() == 0
}

// everywhere returns the destination of a default route in the gateway's family.
func everywhere(gw netip.Addr) netip.Prefix {
	if gw.Is4() {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

// CheckRoutes checks that a network's result has the default route that the pod requested: through the gateways, or none
// if gateways is nil.
func CheckRoutes(network string, gateways []netip.Addr, res *cni.Result) error {
	var have []netip.Addr
	for _, r := range res.Routes {
		if r.Dst.Bits() == 0 && (r.Table == nil || *r.Table == mainTable) {
			have = append(have, r.GW)
		}
	}
	for _, gw := range gateways {
		if !slices.Contains(have, gw) {
			return fmt.Errorf("network %s cannot be the pod's default route by %s: its IPAM plugin takes no routes from the configuration (%s do): set the default route in the configuration of the network", network, gw, strings.Join(routed(), ", "))
		}
	}
	if gateways == nil && len(have) > 0 {
		return fmt.Errorf("network %s has a default route by %s, but the pod requests the default route of another network: remove the route from the configuration", network, have[0])
	}
	return nil
}

// CheckAddresses checks that a network's result has the addresses and the hardware address that the pod requested: an IPAM
// plugin may ignore a request although its network declares the capability. A result need not name hardware addresses.
func (n *Network) CheckAddresses(network, ifName string, res *cni.Result) error {
	for _, text := range n.IPs {
		want, err := cni.ParseAddress(text)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(res.IPs, func(ip cni.IP) bool { return ip.Address.Addr() == want }) {
			return fmt.Errorf("network %s did not give the pod the address %s that it requests: its IPAM plugin ignores the capability ips. Remove the request, or use host-local, static or fairlead-ipam", network, want)
		}
	}
	want, err := hwaddr.Canonical(n.MAC)
	if err != nil {
		return nil // the pod requests none
	}
	for _, i := range res.Interfaces {
		have, err := hwaddr.Canonical(i.Mac)
		if i.Name == ifName && i.Sandbox != "" && err == nil && have != want {
			return fmt.Errorf("network %s gave the pod the hardware address %s and not %s, which it requests: its plugin ignores the capability mac", network, have, want)
		}
	}
	return nil
}

// mainTable is the kernel's main routing table.
const mainTable = 254
