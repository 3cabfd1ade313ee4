// Package ruleset has the packet filter parts that plugins share: nftables chains of table inet fairlead, so that two
// plugins declare the same chain, and iptables rules for configurations that ask for them. It never touches other
// tables.
package ruleset

import "github.com/fairlead/fairlead/kernel"

// Hooks of the shared chains. Their priorities are next to the usual ones, not equal: at equal priority the order
// depends on who registered last. Docker, kube-proxy and nft scripts use -100 (dstnat) and 100 (srcnat); our chains
// come after.
const (
	Prerouting  = "type nat hook prerouting priority -95; policy accept"
	Output      = "type nat hook output priority -95; policy accept"
	Postrouting = "type nat hook postrouting priority 105; policy accept"
	Forward     = "type filter hook forward priority -5; policy accept"
	Raw         = "type filter hook prerouting priority -300; policy accept"
)

// Part returns a part of the table that all networks share.
func Part(what, name, text string) *kernel.NFT {
	return &kernel.NFT{Family: "inet", Table: kernel.Table, Kind: what, Name: name, Text: text}
}

// Of returns a constructor for the parts of one chain group of a network. The group is removed when its sets are empty.
func Of(network, group string) func(what, in, text string) *kernel.NFT {
	return func(what, in, text string) *kernel.NFT {
		n := Part(what, in, text)
		n.Network, n.ChainGroup = network, group
		return n
	}
}

// Element returns an element of a set or, with a value, of a map.
func Element(set, typ, key, value, tag string) *kernel.Element {
	return &kernel.Element{Family: "inet", Table: kernel.Table, Set: set, Type: typ, Key: key, Value: value, OwnerTag: tag}
}

// Family is an address family in nft and iptables syntax.
type Family struct {
	IP        string // ip or ip6
	Addr      string // the nft type of its addresses
	Digit     string // 4 or 6
	Multicast string
	IPTables  IPTables
}

// FamilyOf returns IPv4 or IPv6.
func FamilyOf(v4 bool) Family {
	if v4 {
		return Family{"ip", "ipv4_addr", "4", "224.0.0.0/4", "iptables"}
	}
	return Family{"ip6", "ipv6_addr", "6", "ff00::/8", "ip6tables"}
}
