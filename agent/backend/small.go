package backend

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/kernel"
)

// dropUnusableIPv6 removes the IPv6 objects of tunnels whose MTU is too small for IPv6: the kernel would reject them. It
// returns one problem for each such tunnel.
func (in *Input) dropUnusableIPv6(list kernel.Objects) (out kernel.Objects, problems []Problem) {
	small := map[string]int{} // MTU by link
	for _, o := range list {
		if name, mtu := kernel.Tunnel(o); name != "" && mtu < cluster.MinMTU6 {
			small[name] = mtu
		}
	}
	if len(small) == 0 {
		return list, nil
	}
	reported := map[string]bool{}
	out = slices.DeleteFunc(list, func(o kernel.Object) bool {
		link, ip := linkAndIP(o)
		mtu, is := small[link]
		if !is || !ip.Is6() {
			return false
		}
		if !reported[link] {
			reported[link] = true
			problems = append(problems, Problem{"IPv6 through " + link, fmt.Errorf(
				"the underlay's MTU %d leaves %d, but IPv6 needs %d: raise the underlay's MTU", in.Underlay.MTU, mtu, cluster.MinMTU6)})
		}
		return true
	})
	return out, problems
}

// linkAndIP returns the link and the address of an address, a neighbour or a route.
func linkAndIP(o kernel.Object) (link string, ip netip.Addr) {
	switch x := o.(type) {
	case *kernel.Addr:
		return x.Link, x.Prefix.Addr()
	case *kernel.Neigh:
		return x.Link, x.IP
	case *kernel.Route:
		return x.Link, x.Dst.Addr()
	}
	return "", netip.Addr{}
}
