package cluster

import (
	"errors"
	"fmt"
	"slices"
)

// Check returns all errors of a network that a person gives: those of Validate and of Ignored.
func (n *Network) Check() error { return errors.Join(n.Validate(), n.Ignored()) }

// Ignored returns an error for each key that has no effect in this network. A person who sets it expects one. Networks
// that are in the store already work as before.
func (n *Network) Ignored() error {
	var errs []error
	bad := func(field, format string, args ...any) {
		errs = append(errs, &FieldError{n.Name, field, fmt.Errorf(format, args...)})
	}
	if !n.hasTunnels() {
		const why = "is set, but hosts do not connect the containers of this network: want the name default, or isolated, or no such key"
		if len(n.Backends) > 0 {
			bad("backends", why)
		}
		if n.MTU != 0 {
			bad("mtu", why)
		}
	}
	if n.VNI != 0 && !n.Isolated {
		bad("vni", "is %d, and the network is not isolated: want it as vni of the backend vxlan", n.VNI)
	}
	for i, b := range n.Backends {
		for _, key := range b.otherTypes() {
			bad(fmt.Sprintf("backends[%d].%s", i, key), "is set: a backend of the type %s does not have it", b.Type)
		}
		if j := slices.IndexFunc(n.Backends, func(x Backend) bool { return x.Type == BGP }); b.Type == BGP && j < i {
			bad(fmt.Sprintf("backends[%d]", i), "has the type bgp, as backends[%d]: a node has one BGP speaker, so want bgp once", j)
		}
		if n.Isolated && b.VNI != 0 {
			bad(fmt.Sprintf("backends[%d].vni", i), "is %d: want it as vni of the isolated network", b.VNI)
		}
	}
	for i, s := range n.Subnets {
		for j, x := range s.Exclude {
			first, last, err := ParseRange(x)
			if err == nil && s.CIDR.IsValid() && (last.Less(s.CIDR.Addr()) || LastOf(s.CIDR).Less(first)) {
				bad(fmt.Sprintf("subnets[%d].exclude[%d]", i, j), "is %q: want addresses of %s", x, s.CIDR)
			}
		}
	}
	return errors.Join(errs...)
}

// otherTypes returns those keys of a backend that are set and belong to other types.
func (b Backend) otherTypes() (keys []string) {
	for _, k := range []struct {
		key   string
		set   bool
		types []string
	}{
		{"vni", b.VNI != 0, []string{VXLAN}},
		{"port", b.Port != 0, []string{VXLAN, WireGuard}},
		{"direct", b.Direct, []string{VXLAN}},
		{"keepalive", b.Keepalive != 0, []string{WireGuard}},
		{"rotate", b.Rotate != 0, []string{WireGuard}},
		{"asn", b.ASN != 0, []string{BGP}},
		{"bgpPeer", len(b.BGPPeer) > 0, []string{BGP}},
	} {
		if k.set && !slices.Contains(k.types, b.Type) {
			keys = append(keys, k.key)
		}
	}
	return keys
}
