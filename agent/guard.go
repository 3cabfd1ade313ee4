package agent

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/agent/backend"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/kernel"
)

// guard keeps what is no host's out of the tunnels: neither VXLAN (RFC 7348, section 7)
// nor IPIP knows who sends, and any container can wrap a packet for a network that is not
// its own. It looks at the VXLAN of this cluster's networks alone, by their numbers: a
// container's own tunnels to other containers pass, and other tunnels of the host. It
// comes before connection tracking, so before anybody gives a packet a host's address.
func (w *Wanted) guard(s *cluster.Snapshot, underlay string) {
	tunnels, ipip := w.tunnels()
	if len(tunnels) == 0 && !ipip {
		return
	}
	const hook = "type filter hook prerouting priority -300; policy accept"
	g := &guarding{Wanted: w, underlay: underlay, shared: []netip.Prefix{natRange(false), natRange(true)}}
	for _, n := range sharedNetworks(s) {
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
		g.fromOthers(chain+"-others", len(s.Flannel) > 0)
		// A fragment may be too short to have the number that the whole has.
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

// tunnels are the numbers of this node's VXLAN links by their UDP port, and whether
// there is a link of IPIP.
func (w *Wanted) tunnels() (vnis map[int][]int, ipip bool) {
	vnis = map[int][]int{}
	take := func(list kernel.Objects) {
		for _, v := range kernel.Of[*kernel.VXLAN](list) {
			vnis[v.Port] = append(vnis[v.Port], v.ID)
		}
		ipip = ipip || len(kernel.Of[*kernel.IPIP](list)) > 0
	}
	take(w.Objects)
	for _, sp := range w.Spaces {
		take(sp.Objects) // their sockets are the host's
	}
	return vnis, ipip
}

type guarding struct {
	*Wanted
	underlay string
	shared   []netip.Prefix // of containers, where the host routes them
}

// ours is a link that Fairlead made, which containers send by.
var ours = fmt.Sprintf("iifgroup %d", kernel.LinkGroup)

// hosts are the sets of the cluster's hosts, of both families.
func (g *guarding) hosts(s *cluster.Snapshot) {
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

// senders are the hosts, as a packet's sender.
func senders() []string { return []string{"ip saddr @hosts", "ip6 saddr @hosts6"} }

// fromHosts lets through what comes from hosts, unless by a container's link: this host
// may be a container itself, and its own link one that Fairlead made.
func (g *guarding) fromHosts(chain string) {
	for _, host := range senders() {
		for _, by := range []string{fmt.Sprintf("iifname %q", g.underlay), fmt.Sprintf("iifgroup != %d", kernel.LinkGroup)} {
			g.nft("rule", chain, by+" "+host+" return")
		}
	}
}

// fromOthers drops what is for a host, or for who knows where: it would have this
// host's address there. Flannel's nodes do not tell the address that they send from.
func (g *guarding) fromOthers(chain string, flannel bool) {
	for _, host := range senders() {
		g.nft("rule", chain, ours+" "+host+" drop")
	}
	if flannel {
		g.nft("rule", chain, ours+" fib daddr type local drop")
		for _, p := range g.shared {
			g.nft("rule", chain, fmt.Sprintf("%s saddr %s fib daddr type local drop", familyOf(p), p))
		}
	} else {
		g.nft("rule", chain, "fib daddr type local drop")
	}
	for _, p := range g.shared {
		g.nft("rule", chain, fmt.Sprintf("%s daddr %s return", familyOf(p), p))
	}
	g.nft("rule", chain, ours+" drop")
	for _, p := range g.shared {
		g.nft("rule", chain, fmt.Sprintf("%s saddr %s drop", familyOf(p), p))
	}
}

// ipip drops what containers wrap for a host. IPIP has no number of a network: what
// comes from elsewhere may be another tunnel's of this host.
func (g *guarding) ipip() {
	const chain, number = "ipip", 4
	g.nft("chain", chain, "")
	g.nft("rule", "guard", fmt.Sprintf("meta l4proto %d goto %s", number, chain))
	g.nft("rule", chain, fmt.Sprintf("iifname %q return", g.underlay))
	g.nft("rule", chain, ours+" ip daddr @hosts drop")
	for _, p := range g.shared {
		if p.Addr().Is4() {
			g.nft("rule", chain, fmt.Sprintf("ip saddr %s ip daddr @hosts drop", p))
		}
	}
}
