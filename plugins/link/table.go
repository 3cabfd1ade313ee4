package link

import "github.com/fairlead/fairlead/kernel"

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
