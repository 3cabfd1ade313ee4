package ipam

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/cni"
)

// assign gives each requested address to the first group that fits. In a pool with both kinds of subnets, a cluster
// address replaces one from a block.
func (f *fairlead) assign(n *local.Network, groups []*group) error {
	for _, a := range f.requested {
		i := slices.IndexFunc(groups, func(g *group) bool { return !g.ip.IsValid() && g.contains(a) })
		if i < 0 {
			i = f.asClusterAddress(n, groups, a)
		}
		if i < 0 {
			return cni.Errorf(cni.CodeInvalidNetworkConfig, "requested IP %s: %s", a, mismatch(n, groups, a))
		}
		groups[i].ip = a
	}
	return nil
}

// asClusterAddress returns the index of a group in the same pool that can have this cluster address instead of one from
// a block, or -1.
func (f *fairlead) asClusterAddress(n *local.Network, groups []*group, a netip.Addr) int {
	s := subnetOf(n, a)
	if s == nil || !s.Cluster() {
		return -1
	}
	i := slices.IndexFunc(groups, func(g *group) bool {
		return !g.ip.IsValid() && !g.cluster() && g.pool == s.Name && g.subnets[0].CIDR.Addr().Is6() == a.Is6()
	})
	if i >= 0 {
		groups[i].subnets = []local.Subnet{*s}
	}
	return i
}

func subnetOf(n *local.Network, a netip.Addr) *local.Subnet {
	for i := range n.Subnets {
		if n.Subnets[i].CIDR.Contains(a) {
			return &n.Subnets[i]
		}
	}
	return nil
}

// mismatch returns why the attachment cannot get a requested address.
func mismatch(n *local.Network, groups []*group, a netip.Addr) string {
	var have []string
	for _, g := range groups {
		for _, s := range g.subnets {
			have = append(have, s.CIDR.String())
		}
	}
	words := "an attachment gets one address from each of " + strings.Join(have, ", ")
	s := subnetOf(n, a)
	if s != nil && !slices.ContainsFunc(groups, func(g *group) bool { return g.pool == s.Name }) {
		return fmt.Sprintf(`it is in pool %q (%s), which this configuration does not select: set "pool": %q in "ipam", or in one of its "addresses"; now %s`, s.Name, s.CIDR, s.Name, words)
	}
	return words
}
