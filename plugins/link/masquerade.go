package link

import (
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/plugin"
)

// masquerade states that what the attachment's addresses send beyond their own
// subnet leaves with the host's address. A network has, for each subnet, a set
// of its addresses and a chain; a packet's cost and an attachment's stay flat.
func masquerade(a *plugin.Attachment, r *cni.Result, backend string) kernel.Objects {
	var list kernel.Objects
	for _, ip := range r.IPs {
		if backend == "iptables" {
			list = append(list, iptablesMasquerade(a, ip.Address)...)
		} else {
			list = append(list, nftMasquerade(a, ip.Address)...)
		}
	}
	return list
}

func checkMasqBackend(c *plugin.Conf, backend *string) error {
	switch {
	case backend == nil, *backend == "nftables", *backend == "iptables":
		return nil
	}
	return cni.Invalid(c.Raw, "ipMasqBackend", `want "nftables" or "iptables"`)
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func nftMasquerade(a *plugin.Attachment, ip netip.Prefix) kernel.Objects {
	word, typ, multicast := "ip", "ipv4_addr", "224.0.0.0/4"
	if ip.Addr().Is6() {
		word, typ, multicast = "ip6", "ipv6_addr", "ff00::/8"
	}
	subnet := ip.Masked().String()
	name := kernel.Identifier("masq", a.Network, subnet)
	of := func(what, in, text string) *kernel.NFT {
		n := part(what, in, text)
		n.Network, n.Group = a.Network, name
		return n
	}
	return kernel.Objects{
		part("table", "", ""),
		part("chain", "postrouting", postroutingHook),
		of("set", name, typ),
		of("chain", name, ""),
		of("rule", name, word+" daddr "+subnet+" return"),
		of("rule", name, word+" daddr != "+multicast+" masquerade"),
		of("rule", "postrouting", word+" saddr @"+name+" jump "+name),
		&kernel.Element{Family: "inet", Table: table, Set: name, Type: typ, Key: ip.Addr().String(), Mark: a.Mark()},
	}
}

// iptablesMasquerade is for hosts whose configuration asks for iptables: a
// chain an address, as the backend has no sets.
func iptablesMasquerade(a *plugin.Attachment, ip netip.Prefix) kernel.Objects {
	tool, multicast := "iptables", "224.0.0.0/4"
	if ip.Addr().Is6() {
		tool, multicast = "ip6tables", "ff00::/8"
	}
	chain := "FL-" + kernel.Owner{Network: a.Network, ContainerID: a.ContainerID, IfName: a.IfName + ip.String()}.Hash()[:24]
	subnet, host := ip.Masked().String(), netip.PrefixFrom(ip.Addr(), ip.Addr().BitLen()).String()
	nat := func(args ...string) []string {
		return append([]string{tool, "-w", "-t", "nat"}, args...)
	}
	rule := func(chain string, words ...string) *kernel.Command {
		with := func(verb string) []string {
			return append(nat(verb, chain), append(words, "-m", "comment", "--comment", a.Mark())...)
		}
		return &kernel.Command{Probe: with("-C"), Do: with("-A"), Undo: with("-D")}
	}
	return kernel.Objects{
		&kernel.Command{Probe: nat("-n", "-L", chain), Do: nat("-N", chain), Undo: nat("-X", chain)},
		rule(chain, "-d", subnet, "-j", "ACCEPT"),
		rule(chain, "!", "-d", multicast, "-j", "MASQUERADE"),
		rule("POSTROUTING", "-s", host, "-j", chain),
	}
}

// gatewayOf is the address of a subnet that its gateway has by custom: the first.
func gatewayOf(ip netip.Prefix) (netip.Addr, error) {
	gw := ip.Masked().Addr().Next()
	if ip.Bits() >= ip.Addr().BitLen() || !ip.Contains(gw) {
		return netip.Addr{}, fmt.Errorf("subnet %s has no room for a gateway: name one in ipam", ip)
	}
	return gw, nil
}
