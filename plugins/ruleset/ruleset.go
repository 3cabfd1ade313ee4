// Package ruleset is what plugins share of the packet filter: the parts of
// nftables' table inet fairlead, so that two plugins that need the same chain
// state the same one, and rules of iptables where a configuration asks for it.
// Other tables are never touched.
package ruleset

import "github.com/fairlead/fairlead/kernel"

// The hooks of the chains that plugins share. They stand next to, not on, the
// priorities that others use, so that the order does not depend on who
// registered last: Docker, kube-proxy and nft scripts sit at -100 (dstnat) and
// 100 (srcnat); we come after them.
const (
	Prerouting  = "type nat hook prerouting priority -95; policy accept"
	Output      = "type nat hook output priority -95; policy accept"
	Postrouting = "type nat hook postrouting priority 105; policy accept"
	Forward     = "type filter hook forward priority -5; policy accept"
	Raw         = "type filter hook prerouting priority -300; policy accept"
)

// Part is a part of the table that every network shares.
func Part(what, name, text string) *kernel.NFT {
	return &kernel.NFT{Family: "inet", Table: kernel.Table, Kind: what, Name: name, Text: text}
}

// Of makes the parts of one group of a network, which go when its sets are empty.
func Of(network, group string) func(what, in, text string) *kernel.NFT {
	return func(what, in, text string) *kernel.NFT {
		n := Part(what, in, text)
		n.Network, n.ChainGroup = network, group
		return n
	}
}

// Element is an element of a set, or, with a value, of a map.
func Element(set, typ, key, value, mark string) *kernel.Element {
	return &kernel.Element{Family: "inet", Table: kernel.Table, Set: set, Type: typ, Key: key, Value: value, OwnerTag: mark}
}

// Family is an address family in the words of nft and iptables.
type Family struct {
	IP        string // ip, ip6
	Addr      string // the type of its addresses
	Digit     string // 4, 6
	Multicast string
	IPTables  IPTables
}

// FamilyOf is IPv4 or IPv6.
func FamilyOf(v4 bool) Family {
	if v4 {
		return Family{"ip", "ipv4_addr", "4", "224.0.0.0/4", "iptables"}
	}
	return Family{"ip6", "ipv6_addr", "6", "ff00::/8", "ip6tables"}
}
