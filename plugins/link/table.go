package link

import (
	"strings"

	"github.com/fairlead/fairlead/kernel"
)

// Fairlead's part of nftables is one table, inet fairlead (and, for what only
// bridges see, bridge fairlead). Other tables are never touched.
const table = kernel.Table

// The hooks stand next to, not on, the priorities that others use, so that the
// order does not depend on who registered last: Docker, kube-proxy and nft
// scripts sit at -100 (dstnat) and 100 (srcnat); we come after them.
const postroutingHook = "type nat hook postrouting priority 105; policy accept"

func part(what, name, text string) *kernel.NFT {
	return &kernel.NFT{Family: "inet", Table: table, What: what, Name: name, Text: text}
}

// identifier makes a name of nftables from words: letters, digits, "_", "-",
// "." and "/" stay. A long one ends in a hash.
func identifier(words ...string) string {
	s := strings.Map(func(r rune) rune {
		if r == ':' {
			return '_'
		}
		return r
	}, strings.Join(words, "-"))
	if len(s) <= 100 {
		return s
	}
	return s[:60] + "-" + kernel.Owner{Network: s}.Hash()[:24]
}
