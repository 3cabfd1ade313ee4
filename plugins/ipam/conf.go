package ipam

import (
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/cni"
)

// conf is a network configuration as an IPAM plugin reads it; T is the type of the key ipam.
type conf[T any] struct {
	CNIVersion    string `json:"cniVersion"`
	Name          string `json:"name"`
	IPAM          *T     `json:"ipam"`
	RuntimeConfig struct {
		IPRanges [][]rangeConf `json:"ipRanges"`
		IPs      []string      `json:"ips"`
	} `json:"runtimeConfig"`
	Args struct {
		CNI struct {
			IPs []string `json:"ips"`
		} `json:"cni"`
	} `json:"args"`
}

func decode[T any](data []byte) (c conf[T], err error) {
	if err := cni.Decode(data, &c); err != nil {
		return c, err
	}
	if c.IPAM == nil {
		return c, cni.Invalid(data, "ipam", "missing: want an object")
	}
	return c, nil
}

// identity returns the network's name and the keys of ipam that find its addresses. DEL, GC and CHECK need no others: the
// rest may have become invalid since ADD.
func identity[T any](data []byte) (name string, keys T, err error) {
	var c struct {
		Name string `json:"name"`
		IPAM T      `json:"ipam"`
	}
	err = cni.Decode(data, &c)
	return c.Name, c.IPAM, err
}

// routeConf is a route in a configuration; the last five keys came with version 1.1.0.
type routeConf struct {
	Dst      netip.Prefix `json:"dst"`
	GW       netip.Addr   `json:"gw"`
	MTU      int          `json:"mtu"`
	AdvMSS   int          `json:"advmss"`
	Priority int          `json:"priority"`
	Table    *int         `json:"table"`
	Scope    *int         `json:"scope"`
}

type bounded struct {
	key     string
	v, most int64
}

// numbers returns a route's numbers with the kernel's limits: rtnetlink(7).
func (r routeConf) numbers() []bounded {
	list := []bounded{{"mtu", int64(r.MTU), 1<<32 - 1}, {"advmss", int64(r.AdvMSS), 1<<32 - 1}, {"priority", int64(r.Priority), 1<<32 - 1}}
	if r.Table != nil {
		list = append(list, bounded{"table", int64(*r.Table), 1<<32 - 1})
	}
	if r.Scope != nil {
		list = append(list, bounded{"scope", int64(*r.Scope), 255})
	}
	return list
}

func routes(data []byte, list []routeConf) ([]cni.Route, error) {
	var out []cni.Route
	for i, r := range list {
		if !r.Dst.IsValid() {
			return nil, cni.Invalid(data, fmt.Sprintf("ipam.routes[%d].dst", i), `missing: want a destination, like "0.0.0.0/0" or "fd00:2::/64"`)
		}
		if err := checkZone(data, fmt.Sprintf("ipam.routes[%d].gw", i), r.GW); err != nil {
			return nil, err
		}
		for _, n := range r.numbers() {
			if n.v < 0 || n.v > n.most {
				return nil, cni.Invalid(data, fmt.Sprintf("ipam.routes[%d].%s", i, n.key), fmt.Sprintf("want 0 to %d", n.most))
			}
		}
		out = append(out, cni.Route{Dst: r.Dst, GW: r.GW.Unmap(), MTU: r.MTU, AdvMSS: r.AdvMSS,
			Priority: r.Priority, Table: r.Table, Scope: r.Scope})
	}
	return out, nil
}

// checkZone rejects an address with a zone, like fe80::1%eth0. Results have no zones.
func checkZone(data []byte, key string, a netip.Addr) error {
	if a.Zone() != "" {
		return cni.Invalid(data, key, "want an address without a zone, like fe80::1")
	}
	return nil
}

// gatewayOf rejects a gateway with a zone, or of another family than its address.
func gatewayOf(data []byte, key string, gateway netip.Addr, address netip.Prefix) error {
	if gateway.IsValid() && gateway.Unmap().Is4() != address.Addr().Is4() {
		return cni.Invalid(data, key, fmt.Sprintf("want an address of the same family as %s", address))
	}
	return checkZone(data, key, gateway)
}

// checkFamilies rejects results that versions before 0.3.0 cannot express: they have one address per family.
func checkFamilies(version string, addrs []netip.Addr) error {
	if cni.AtLeast(version, "0.3.0") {
		return nil
	}
	v4 := 0
	for _, a := range addrs {
		if a.Is4() {
			v4++
		}
	}
	if v4 > 1 || len(addrs)-v4 > 1 {
		return cni.Errorf(cni.CodeInvalidNetworkConfig,
			"cniVersion %q does not support more than 1 address per family: want 0.3.0 or newer", version)
	}
	return nil
}
