package link

import (
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/plugins/ruleset"
)

const (
	spoofPorts = "macspoofchk-ports" // ports whose senders are checked
	spoofPairs = "macspoofchk"       // a port and the address it may send from
)

func bridgePart(what, name, text string) *kernel.NFT {
	return &kernel.NFT{Family: "bridge", Table: kernel.Table, Kind: what, Name: name, Text: text}
}

func bridgeElement(set, typ, key, tag string) *kernel.Element {
	return &kernel.Element{Family: "bridge", Table: kernel.Table, Set: set, Type: typ, Key: key, OwnerTag: tag}
}

// spoofCheck lets a port pass frames from one hardware address only.
func spoofCheck(a *plugin.Attachment, port, mac string) kernel.Objects {
	return kernel.Objects{
		bridgePart("table", "", ""),
		bridgePart("set", spoofPorts, "ifname"),
		bridgePart("set", spoofPairs, "ifname . ether_addr"),
		bridgePart("chain", "prerouting", ruleset.Raw),
		bridgePart("rule", "prerouting", "iifname @"+spoofPorts+" iifname . ether saddr != @"+spoofPairs+" drop"),
		bridgeElement(spoofPairs, "ifname . ether_addr", port+" . "+mac, a.Tag()),
		bridgeElement(spoofPorts, "ifname", port, a.Tag()),
	}
}
