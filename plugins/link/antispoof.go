package link

import (
	"encoding/hex"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/internal/hwaddr"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/plugins/ruleset"
)

// Sets that pin a port's senders; every table has the same. The cost of a packet and of an attach does not grow with
// the number of containers.
const (
	spoofChain  = "antispoof"
	pinnedPorts = "antispoof-ports" // host ends whose senders are pinned
	pinnedMACs  = "antispoof-macs"  // a port and its hardware address
	pinnedV4    = "antispoof-v4"    // a port and its addresses
	pinnedV6    = "antispoof-v6"
	pinnedND    = "antispoof-nd"   // the same, as the target of a neighbour advertisement
	pinnedDHCP  = "antispoof-dhcp" // ports that may send DHCP requests

	neighbourTarget = "@nh,384,128" // see package kernel
)

// pins is one port in one family's table.
type pins struct {
	family string
	tag    string
	port   string
}

func (p pins) part(what, name, text string) *kernel.NFT {
	return &kernel.NFT{Family: p.family, Table: kernel.Table, Kind: what, Name: name, Text: text}
}

// element returns the port's element in a set, with a value of type typ. If typ is "", the element is the port alone.
func (p pins) element(set, typ, key string) *kernel.Element {
	if typ != "" {
		typ, key = " . "+typ, " . "+key
	}
	return &kernel.Element{Family: p.family, Table: kernel.Table, Set: set, Type: "ifname" + typ, Key: p.port + key, OwnerTag: p.tag}
}

func (p pins) rules(chain string, rules ...string) (out kernel.Objects) {
	for _, r := range rules {
		out = append(out, p.part("rule", chain, r))
	}
	return out
}

// checkAntiSpoof rejects antiSpoof without IPAM: there would be no address to pin.
func checkAntiSpoof(c *plugin.Conf, wanted bool) error {
	if wanted && c.IPAM.Type == "" {
		return cni.Invalid(c.Raw, "antiSpoof", "needs ipam: it allows only addresses from IPAM, so without ipam the container could send nothing. To check only the hardware address, set macspoofchk on a bridge")
	}
	return nil
}

// pinPort lets a bridge port pass frames from one hardware address only. With dhcp, the port may also send DHCP
// requests. pinAddresses adds the IP addresses later.
func pinPort(a *plugin.Attachment, port, mac string, dhcp bool) kernel.Objects {
	p := pins{"bridge", a.Tag(), port}
	list := kernel.Objects{p.part("table", "", "")}
	list = append(list, p.sets("ip", "ip6", "arp")...)
	list = append(list, p.part("chain", "prerouting", ruleset.Raw))
	list = append(list, p.chains("ip", "ip6", "arp")...)
	list = append(list, p.rules("prerouting", "iifname @"+pinnedPorts+" jump "+spoofChain)...)
	return append(list, p.own(mac, dhcp)...)
}

// pinLink is pinPort for a routed link: table inet checks IP, a table of family arp checks ARP.
func pinLink(a *plugin.Attachment, port, mac string, dhcp bool) kernel.Objects {
	p := pins{"inet", a.Tag(), port}
	list := kernel.Objects{p.part("table", "", "")}
	list = append(list, p.sets("ip", "ip6")...)
	list = append(list, p.part("chain", "pinned", ruleset.Raw))
	list = append(list, p.chains("ip", "ip6")...)
	list = append(list, p.rules("pinned", "iifname @"+pinnedPorts+" jump "+spoofChain)...)
	list = append(list, p.own(mac, dhcp)...)
	arp := pins{"arp", a.Tag(), port}
	list = append(list, arp.part("table", "", ""))
	list = append(list, arp.sets("arp")...)
	list = append(list, arp.part("chain", "input", "type filter hook input priority -300; policy accept"))
	list = append(list, arp.chains("arp")...)
	list = append(list, arp.rules("input", "iifname @"+pinnedPorts+" jump "+spoofChain)...)
	return append(list, arp.own(mac, dhcp)...)
}

// sets returns the sets that the chains of these protocols use.
func (p pins) sets(protocols ...string) kernel.Objects {
	out := kernel.Objects{
		p.part("set", pinnedPorts, "ifname"), p.part("set", pinnedDHCP, "ifname"),
		p.part("set", pinnedMACs, "ifname . ether_addr"), p.part("set", pinnedV4, "ifname . ipv4_addr"),
	}
	if slices.Contains(protocols, "ip6") {
		out = append(out, p.part("set", pinnedV6, "ifname . ipv6_addr"), p.part("set", pinnedND, "ifname . "+neighbourTarget))
	}
	return out
}

// chains returns the chains that check each protocol. They drop everything but IP and ARP, because a tunnel inside
// other frames could carry any address.
func (p pins) chains(protocols ...string) kernel.Objects {
	if len(protocols) == 1 {
		return append(kernel.Objects{p.part("chain", spoofChain, "")}, p.rules(spoofChain, pinnedRules(protocols[0])...)...)
	}
	all := []string{"iifname . ether saddr != @" + pinnedMACs + " drop"}
	var list kernel.Objects
	for _, proto := range protocols {
		list = append(list, p.part("chain", spoofChain+"-"+proto, ""))
		list = append(list, p.rules(spoofChain+"-"+proto, pinnedRules(proto)...)...)
		all = append(all, "meta protocol "+proto+" goto "+spoofChain+"-"+proto)
	}
	list = append(list, p.part("chain", spoofChain, ""))
	return append(list, p.rules(spoofChain, append(all, "drop")...)...)
}

// pinnedRules returns the rules of a protocol. A container must not act as a DHCP server or a router. It may send
// neighbour advertisements for its own addresses only. The unspecified source is valid during address configuration
// (RFC 4862; RFC 3810, section 5.2.13).
func pinnedRules(protocol string) []string {
	switch protocol {
	case "ip":
		return []string{
			"udp sport 67 drop",
			"iifname . ip saddr @" + pinnedV4 + " return",
			"iifname @" + pinnedDHCP + " ip saddr 0.0.0.0 udp sport 68 udp dport 67 return",
			"drop",
		}
	case "arp":
		return []string{
			"iifname . arp saddr ether != @" + pinnedMACs + " drop",
			"iifname . arp saddr ip @" + pinnedV4 + " return",
			"iifname @" + pinnedDHCP + " arp saddr ip 0.0.0.0 return",
			"drop",
		}
	}
	return []string{
		"udp sport 547 drop",
		"icmpv6 type nd-router-advert drop",
		"icmpv6 type nd-redirect drop",
		"ip6 nexthdr != ipv6-icmp icmpv6 type nd-neighbor-advert drop", // behind extension headers the target is at another offset
		"icmpv6 type nd-neighbor-advert iifname . " + neighbourTarget + " != @" + pinnedND + " drop",
		"iifname . ip6 saddr @" + pinnedV6 + " return",
		"ip6 saddr != :: drop",
		"ip6 nexthdr ipv6-icmp icmpv6 type nd-neighbor-solicit iifname . " + neighbourTarget + " @" + pinnedND + " return",
		"icmpv6 type nd-router-solicit return",
		"icmpv6 type mld-listener-report return",
		"icmpv6 type mld2-listener-report return",
		"drop",
	}
}

// own returns the elements that do not depend on IPAM.
func (p pins) own(mac string, dhcp bool) kernel.Objects {
	list := kernel.Objects{p.element(pinnedMACs, "ether_addr", mac)}
	if p.family != "arp" {
		list = append(list, p.address(hwaddr.LinkLocal(mac))...)
	}
	if dhcp {
		list = append(list, p.element(pinnedDHCP, "", ""))
	}
	return append(list, p.element(pinnedPorts, "", ""))
}

func (p pins) address(ip netip.Addr) kernel.Objects {
	switch {
	case ip.Is4():
		return kernel.Objects{p.element(pinnedV4, "ipv4_addr", ip.String())}
	case p.family == "arp":
		return nil
	}
	return kernel.Objects{
		p.element(pinnedV6, "ipv6_addr", ip.String()),
		p.element(pinnedND, neighbourTarget, "0x"+hex.EncodeToString(ip.AsSlice())),
	}
}

// pinAddresses lets a port send from the result's addresses.
func pinAddresses(a *plugin.Attachment, port string, r *cni.Result, families ...string) (list kernel.Objects) {
	for _, f := range families {
		for _, ip := range r.IPs {
			list = append(list, pins{f, a.Tag(), port}.address(ip.Address.Addr())...)
		}
	}
	return list
}
