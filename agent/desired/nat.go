package desired

import (
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/agent/backend"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/kernel"
)

// rules adds the host's nftables rules. They masquerade traffic that leaves the networks with NAT, and stop isolated
// networks with NAT from reaching other containers.
func (w *State) rules(s *cluster.Snapshot, ends map[string]natLinkPair) {
	var all, masqueraded []netip.Prefix
	for _, n := range SharedNetworks(s) {
		for _, x := range n.Subnets {
			all = append(all, x.CIDR)
			if n.NAT {
				masqueraded = append(masqueraded, x.CIDR)
			}
		}
	}
	for _, name := range sortedKeys(ends) {
		for _, six := range families(s.Networks[name]) {
			a := ends[name].pair(six)[1]
			masqueraded = append(masqueraded, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	if len(masqueraded) > 0 {
		w.masquerade(all, masqueraded)
	}
	if len(ends) > 0 {
		w.isolate(all, ends)
	}
}

// SharedNetworks returns the networks in the host's namespace, sorted by name.
func SharedNetworks(s *cluster.Snapshot) (out []*cluster.Network) {
	for _, name := range sortedKeys(s.Networks) {
		if n := s.Networks[name]; !n.Isolated {
			out = append(out, n)
		}
	}
	return out
}

func (w *State) nft(what, chain, text string) {
	w.Objects = append(w.Objects, &kernel.NFT{Family: "inet", Table: backend.Table, Kind: what, Name: chain, Text: text})
}

// masquerade uses priority 104: before the plugins' 105, and after kube-proxy's 100.
func (w *State) masquerade(not, masqueraded []netip.Prefix) {
	const chain = "postrouting"
	w.nft("chain", chain, "type nat hook postrouting priority 104; policy accept")
	for _, p := range append(not, multicast()...) {
		w.nft("rule", chain, fmt.Sprintf("%s daddr %s return", familyOf(p), p))
	}
	for _, p := range masqueraded {
		if p.IsSingleIP() {
			w.nft("rule", chain, fmt.Sprintf("%s saddr %s masquerade", familyOf(p), p.Addr()))
		} else {
			w.nft("rule", chain, fmt.Sprintf("%s saddr %s masquerade", familyOf(p), p))
		}
	}
}

func multicast() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("224.0.0.0/4"), netip.MustParsePrefix("ff00::/8")}
}

func familyOf(p netip.Prefix) string {
	if p.Addr().Is6() {
		return "ip6"
	}
	return "ip"
}

// isolate stops isolated networks from reaching other networks' containers and NAT links.
func (w *State) isolate(shared []netip.Prefix, ends map[string]natLinkPair) {
	const chain = "isolate"
	w.nft("chain", chain, "type filter hook forward priority -10; policy accept")
	for _, name := range sortedKeys(ends) {
		for _, p := range append(shared, natRange(false), natRange(true)) {
			w.nft("rule", chain, fmt.Sprintf("iifname %q %s daddr %s drop", ends[name].link, familyOf(p), p))
		}
	}
}

// natRange returns the range of all NAT link addresses.
func natRange(six bool) netip.Prefix {
	if six {
		return netip.MustParsePrefix("fdfa:1ead::/32")
	}
	return netip.MustParsePrefix("169.254.0.0/16")
}
