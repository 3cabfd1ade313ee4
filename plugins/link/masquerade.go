package link

import (
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/plugins/ruleset"
)

// masquerade rewrites the source of packets that leave the attachment's subnet to the host's address. Each subnet of a
// network has one set of addresses and one chain, so the cost of a packet and of an attach stays constant.
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
	f := ruleset.FamilyOf(ip.Addr().Is4())
	subnet := ip.Masked().String()
	name := kernel.Identifier("masq", a.Network, subnet)
	of := ruleset.Of(a.Network, name)
	return kernel.Objects{
		ruleset.Part("table", "", ""),
		ruleset.Part("chain", "postrouting", ruleset.Postrouting),
		of("set", name, f.Addr),
		of("chain", name, ""),
		of("rule", name, f.IP+" daddr "+subnet+" return"),
		of("rule", name, f.IP+" daddr != "+f.Multicast+" masquerade"),
		of("rule", "postrouting", f.IP+" saddr @"+name+" jump "+name),
		ruleset.Element(name, f.Addr, ip.Addr().String(), "", a.Tag()),
	}
}

// iptablesMasquerade is for configurations that ask for iptables. It needs a chain per address, because this backend
// has no sets.
func iptablesMasquerade(a *plugin.Attachment, ip netip.Prefix) kernel.Objects {
	f := ruleset.FamilyOf(ip.Addr().Is4())
	chain := "FL-" + kernel.Owner{Network: a.Network, ContainerID: a.ContainerID, IfName: a.IfName + ip.String()}.Hash()[:24]
	rule := func(chain string, words ...string) *kernel.Command {
		return f.IPTables.Rule(false, chain, append(words, "-m", "comment", "--comment", a.Tag())...)
	}
	return kernel.Objects{
		f.IPTables.Chain(chain, false),
		rule(chain, "-d", ip.Masked().String(), "-j", "ACCEPT"),
		rule(chain, "!", "-d", f.Multicast, "-j", "MASQUERADE"),
		rule("POSTROUTING", "-s", single(ip.Addr()).String(), "-j", chain),
	}
}

// gatewayOf returns the usual gateway of a subnet: its first address.
func gatewayOf(ip netip.Prefix) (netip.Addr, error) {
	gw := ip.Masked().Addr().Next()
	if ip.Bits() >= ip.Addr().BitLen() || !ip.Contains(gw) {
		return netip.Addr{}, fmt.Errorf("subnet %s has no room for a gateway: set one in ipam", ip)
	}
	return gw, nil
}
