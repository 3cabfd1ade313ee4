package agent

import (
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/agent/backend"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/kernel"
)

// rules are the nftables of the host: what leaves the cluster's networks has the
// host's address where a network wants that, and isolated networks that have a way
// out have none to other containers.
func (w *Wanted) rules(s *cluster.Snapshot, ends map[string]natEnd) {
	var all, masked []netip.Prefix
	for _, n := range sharedNetworks(s) {
		for _, x := range n.Subnets {
			all = append(all, x.CIDR)
			if n.NAT {
				masked = append(masked, x.CIDR)
			}
		}
	}
	for _, name := range sortedKeys(ends) {
		for _, six := range families(s.Networks[name]) {
			a := ends[name].pair(six)[1]
			masked = append(masked, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	if len(masked) > 0 {
		w.masquerade(all, masked)
	}
	if len(ends) > 0 {
		w.isolate(all, ends)
	}
}

// sharedNetworks are those that live in the host's namespace, in order.
func sharedNetworks(s *cluster.Snapshot) (out []*cluster.Network) {
	for _, name := range sortedKeys(s.Networks) {
		if n := s.Networks[name]; !n.Isolated {
			out = append(out, n)
		}
	}
	return out
}

func (w *Wanted) nft(what, chain, text string) {
	w.Objects = append(w.Objects, &kernel.NFT{Family: "inet", Table: backend.Table, Kind: what, Name: chain, Text: text})
}

// masquerade comes before what plugins and kube-proxy do (105 and 100 are theirs
// after and before it).
func (w *Wanted) masquerade(not, masked []netip.Prefix) {
	const chain = "postrouting"
	w.nft("chain", chain, "type nat hook postrouting priority 104; policy accept")
	for _, p := range append(not, multicast()...) {
		w.nft("rule", chain, fmt.Sprintf("%s daddr %s return", familyOf(p), p))
	}
	for _, p := range masked {
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

// isolate keeps what comes out of isolated networks from containers of others and
// from other networks' ways out.
func (w *Wanted) isolate(shared []netip.Prefix, ends map[string]natEnd) {
	const chain = "isolate"
	w.nft("chain", chain, "type filter hook forward priority -10; policy accept")
	for _, name := range sortedKeys(ends) {
		for _, p := range append(shared, natRange(false), natRange(true)) {
			w.nft("rule", chain, fmt.Sprintf("iifname %q %s daddr %s drop", ends[name].link, familyOf(p), p))
		}
	}
}

// natRange is that of all ways out.
func natRange(six bool) netip.Prefix {
	if six {
		return netip.MustParsePrefix("fdfa:1ead::/32")
	}
	return netip.MustParsePrefix("169.254.0.0/16")
}
