package desired

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/agent/backend"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/kernel"
)

// guard drops tunnel packets that no cluster host sent. Neither VXLAN (RFC 7348, section 7) nor IPIP authenticates the
// sender, so any container could inject packets into another network. Only VXLAN packets with a VNI of this cluster are
// checked; containers' own tunnels and the host's other tunnels pass. The chain runs before connection tracking, so
// before any SNAT to a host address.
func (w *State) guard(s *cluster.Snapshot, underlay string) {
	tunnels, ipip := w.tunnels()
	if len(tunnels) == 0 && !ipip {
		return
	}
	const hook = "type filter hook prerouting priority -300; policy accept"
	g := &tunnelGuard{State: w, underlay: underlay, shared: []netip.Prefix{natRange(false), natRange(true)}}
	for _, n := range SharedNetworks(s) {
		for _, x := range n.Subnets {
			g.shared = append(g.shared, x.CIDR)
		}
	}
	g.hosts(s)
	w.nft("chain", "guard", hook)
	for _, port := range slices.Sorted(maps.Keys(tunnels)) {
		chain := fmt.Sprintf("vxlan-%d", port)
		w.nft("chain", chain, "")
		w.nft("rule", "guard", fmt.Sprintf("udp dport %d goto %s", port, chain))
		g.fromHosts(chain)
		w.nft("chain", chain+"-others", "")
		g.fromOthers(chain+"-others", hasFlannel(s))
		// A fragment may be too short to contain the VNI.
		for _, fragment := range []string{"ip frag-off & 16383 != 0", "exthdr frag exists"} {
			w.nft("rule", chain, fmt.Sprintf("%s goto %s-others", fragment, chain))
		}
		for _, vni := range slices.Sorted(slices.Values(tunnels[port])) {
			w.nft("rule", chain, fmt.Sprintf("@th,96,24 %#x goto %s-others", vni, chain))
		}
	}
	if ipip {
		g.ipip()
	}
}

// tunnels returns the VNIs of this node's VXLAN links by UDP port, and whether it has an IPIP link.
func (w *State) tunnels() (vnis map[int][]int, ipip bool) {
	vnis = map[int][]int{}
	take := func(list kernel.Objects) {
		for _, v := range kernel.Of[*kernel.VXLAN](list) {
			vnis[v.Port] = append(vnis[v.Port], v.ID)
		}
		ipip = ipip || len(kernel.Of[*kernel.IPIP](list)) > 0
	}
	take(w.Objects)
	for _, sp := range w.Namespaces {
		take(sp.Objects) // their sockets are in the host's namespace
	}
	return vnis, ipip
}

type tunnelGuard struct {
	*State
	underlay string
	shared   []netip.Prefix // container subnets that the host routes
}

// fromFairleadLink matches packets from a link that Fairlead created, that is, from a container.
var fromFairleadLink = fmt.Sprintf("iifgroup %d", kernel.LinkGroup)

// hosts adds the sets of the cluster hosts' addresses, one per family.
func (g *tunnelGuard) hosts(s *cluster.Snapshot) {
	of := map[bool][]netip.Addr{}
	take := func(n *cluster.Node) {
		for _, p := range n.Addresses {
			of[p.Addr().Is6()] = append(of[p.Addr().Is6()], p.Addr())
		}
	}
	for _, n := range s.Nodes {
		take(n)
	}
	for _, l := range s.Flannel {
		take(l.Node())
	}
	for _, six := range []bool{false, true} {
		slices.SortFunc(of[six], netip.Addr.Compare)
		set := &kernel.NFT{Family: "inet", Table: backend.Table, Kind: "set", Name: "hosts", Text: "ipv4_addr", Addrs: slices.Compact(of[six])}
		if six {
			set.Name, set.Text = "hosts6", "ipv6_addr"
		}
		g.Objects = append(g.Objects, set)
	}
}

// senders returns the matches for packets whose source is a cluster host.
func senders() []string { return []string{"ip saddr @hosts", "ip6 saddr @hosts6"} }

// fromHosts accepts packets from hosts, unless they arrive on a container's link. The underlay is exempt: this host may
// itself be a container with a link that Fairlead created.
func (g *tunnelGuard) fromHosts(chain string) {
	for _, host := range senders() {
		for _, by := range []string{fmt.Sprintf("iifname %q", g.underlay), fmt.Sprintf("iifgroup != %d", kernel.LinkGroup)} {
			g.nft("rule", chain, by+" "+host+" return")
		}
	}
}

// fromOthers drops packets to hosts, or to unknown destinations, which would be sent on with this host's address.
// Flannel's nodes do not publish the address that they send from.
func (g *tunnelGuard) fromOthers(chain string, flannel bool) {
	for _, host := range senders() {
		g.nft("rule", chain, fromFairleadLink+" "+host+" drop")
	}
	if flannel {
		g.nft("rule", chain, fromFairleadLink+" fib daddr type local drop")
		for _, p := range g.shared {
			g.nft("rule", chain, fmt.Sprintf("%s saddr %s fib daddr type local drop", familyOf(p), p))
		}
	} else {
		g.nft("rule", chain, "fib daddr type local drop")
	}
	for _, p := range g.shared {
		g.nft("rule", chain, fmt.Sprintf("%s daddr %s return", familyOf(p), p))
	}
	g.nft("rule", chain, fromFairleadLink+" drop")
	for _, p := range g.shared {
		g.nft("rule", chain, fmt.Sprintf("%s saddr %s drop", familyOf(p), p))
	}
}

// hasFlannel reports whether the cluster has flannel nodes.
func hasFlannel(s *cluster.Snapshot) bool {
	for _, n := range s.Nodes {
		if n.Flannel != nil {
			return true
		}
	}
	return len(s.Flannel) > 0
}

// ipip drops IPIP packets from containers to hosts. IPIP has no network number, so packets from elsewhere may belong to
// another tunnel of this host and pass.
func (g *tunnelGuard) ipip() {
	const chain, number = "ipip", 4
	g.nft("chain", chain, "")
	g.nft("rule", "guard", fmt.Sprintf("meta l4proto %d goto %s", number, chain))
	g.nft("rule", chain, fmt.Sprintf("iifname %q return", g.underlay))
	g.nft("rule", chain, fromFairleadLink+" ip daddr @hosts drop")
	for _, p := range g.shared {
		if p.Addr().Is4() {
			g.nft("rule", chain, fmt.Sprintf("ip saddr %s ip daddr @hosts drop", p))
		}
	}
}
