package chain

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/plugin"
)

// The rules that every mapping shares. A connection to a local address is
// looked up in two maps a family, by address and port, then by port alone, so
// its cost does not grow with the number of ports. Hooks stand next to, not on,
// the priorities of others: after Docker and kube-proxy (-100, 100).
const (
	preHook    = "type nat hook prerouting priority -95; policy accept"
	outHook    = "type nat hook output priority -95; policy accept"
	postHook   = "type nat hook postrouting priority 105; policy accept"
	filterHook = "type filter hook prerouting priority -300; policy accept"

	portsChain = "hostports"
	masqChain  = "hostports-masquerade"
)

// words are a family's in the language of nft.
type words struct{ ip, addr, suffix, multicast string }

func wordsOf(v4 bool) words {
	if v4 {
		return words{"ip", "ipv4_addr", "4", "224.0.0.0/4"}
	}
	return words{"ip6", "ipv6_addr", "6", "ff00::/8"}
}

func part(what, name, text string) *kernel.NFT {
	return &kernel.NFT{Family: "inet", Table: kernel.Table, What: what, Name: name, Text: text}
}

func element(set, typ, key, value, mark string) *kernel.Element {
	return &kernel.Element{Family: "inet", Table: kernel.Table, Set: set, Type: typ, Key: key, Value: value, Mark: mark}
}

const (
	anyPorts = "hostports-any" // by protocol and port: every address of the host
	onePorts = "hostports-one" // by host address too
	allPorts = "hostports-masqall"
)

func anyType(w words) string { return "inet_proto . inet_service : " + w.addr + " . inet_service" }
func oneType(w words) string { return w.addr + " . " + anyType(w) }
func endType(w words) string { return "inet_proto . " + w.addr + " . inet_service" }

// base is what all attachments of both families share.
func base() kernel.Objects {
	list := kernel.Objects{part("table", "", "")}
	for _, v4 := range []bool{true, false} {
		w := wordsOf(v4)
		list = append(list,
			part("map", onePorts+w.suffix, oneType(w)),
			part("map", anyPorts+w.suffix, anyType(w)),
			part("set", allPorts+w.suffix, endType(w)))
	}
	list = append(list,
		part("chain", portsChain, ""), part("chain", masqChain, ""),
		part("chain", "prerouting", preHook), part("chain", "output", outHook), part("chain", "postrouting", postHook))
	for _, v4 := range []bool{true, false} {
		w := wordsOf(v4)
		list = append(list,
			part("rule", portsChain, "dnat "+w.ip+" to "+w.ip+" daddr . meta l4proto . th dport map @"+onePorts+w.suffix),
			part("rule", portsChain, "meta nfproto ipv"+w.suffix+" dnat "+w.ip+" to meta l4proto . th dport map @"+anyPorts+w.suffix),
			part("rule", masqChain, "meta l4proto . "+w.ip+" daddr . th dport @"+allPorts+w.suffix+" masquerade"))
	}
	return append(list,
		part("rule", "postrouting", "ct status dnat jump "+masqChain),
		part("rule", "output", "fib daddr type local jump "+portsChain),
		part("rule", "prerouting", "fib daddr type local jump "+portsChain))
}

// maps states the mappings of one address: elements, and what its subnet needs.
func (c *portmap) maps(a *plugin.Attachment, ip netip.Prefix, list []mapping) kernel.Objects {
	w := wordsOf(ip.Addr().Is4())
	out := c.hairpin(a, ip, list)
	for _, m := range list {
		value := fmt.Sprintf("%s . %d", ip.Addr(), m.container)
		key := fmt.Sprintf("%s . %d", m.protocol, m.hostPort)
		if m.every() {
			out = append(out, element(anyPorts+w.suffix, anyType(w), key, value, a.Mark()))
		} else {
			out = append(out, element(onePorts+w.suffix, oneType(w), m.hostIP.String()+" . "+key, value, a.Mark()))
		}
	}
	return out
}

// hairpin states who must be masqueraded to get answers: with snat the
// container's own subnet, whose members would answer each other directly, and
// the host's loopback; with masqAll everyone. It goes by addresses alone: with
// bridge-nf-call-iptables the interface is the bridge.
func (c *portmap) hairpin(a *plugin.Attachment, ip netip.Prefix, list []mapping) (out kernel.Objects) {
	w := wordsOf(ip.Addr().Is4())
	set := allPorts + w.suffix
	switch {
	case !c.SNAT:
		return nil
	case !c.MasqAll:
		var group kernel.Objects
		set, group = hairpinGroup(a.Network, ip.Masked(), w)
		out = append(out, group...)
	}
	seen := map[string]bool{}
	for _, m := range list {
		key := fmt.Sprintf("%s . %s . %d", m.protocol, ip.Addr(), m.container)
		if !seen[key] {
			seen[key] = true
			out = append(out, element(set, endType(w), key, "", a.Mark()))
		}
	}
	return out
}

// hairpinGroup is the part of the ruleset that a network's subnet has to itself.
func hairpinGroup(network string, subnet netip.Prefix, w words) (set string, list kernel.Objects) {
	name := kernel.Identifier("hostports", network, subnet.String())
	of := func(what, in, text string) *kernel.NFT {
		n := part(what, in, text)
		n.Network, n.Group = network, name
		return n
	}
	list = kernel.Objects{
		of("set", name, endType(w)),
		of("chain", name, ""),
		of("rule", name, w.ip+" saddr "+subnet.String()+" masquerade"),
	}
	if w.ip == "ip" {
		list = append(list, of("rule", name, "ip saddr 127.0.0.0/8 masquerade"))
	}
	return name, append(list, of("rule", masqChain, "meta l4proto . "+w.ip+" daddr . th dport @"+name+" jump "+name))
}

// fromLoopback lets the host reach its ports by 127.0.0.1: the container's
// link routes the loopback network, and nothing but lo may bring packets of it
// (CVE-2020-8558).
func (c *portmap) fromLoopback(a *plugin.Attachment, r *cni.Result, target netip.Addr) kernel.Objects {
	link := hostLink(a, r, target)
	if link == "" {
		return nil
	}
	return kernel.Objects{
		part("table", "", ""),
		part("chain", "loopback", filterHook),
		part("rule", "loopback", `iifname != "lo" ip daddr 127.0.0.0/8 drop`),
		part("rule", "loopback", `iifname != "lo" ip saddr 127.0.0.0/8 drop`),
		&kernel.Sysctl{Key: "net/ipv4/conf/" + link + "/route_localnet", Value: "1", IsShared: true},
	}
}

// hostLink is the interface of the attachment's own through which the host
// reaches the container: its bridge, or its end of the pair. A result before
// 0.3.0 names no interfaces; then the route alone tells.
func hostLink(a *plugin.Attachment, r *cni.Result, target netip.Addr) string {
	first := ""
	by, err := a.Facts.LinkTo(target)
	if len(r.Interfaces) == 0 && err == nil {
		return by
	}
	for _, i := range r.Interfaces {
		if i.Sandbox != "" {
			continue
		}
		if err == nil && i.Name == by {
			return by
		}
		if first == "" {
			first = i.Name
		}
	}
	return first
}

// conditional states mappings under conditions in nft's own words, which only
// its command can read: base chains of the attachment's own.
func (c *portmap) conditional(a *plugin.Attachment, ip netip.Prefix, list []mapping) kernel.Objects {
	v4 := ip.Addr().Is4()
	w := wordsOf(v4)
	conditions := strings.Join(c.conditions(v4), " ")
	name := "hostports-" + kernel.Owner{Network: a.Network, ContainerID: a.ContainerID, IfName: a.IfName + w.suffix}.Hash()[:16]
	out := c.hairpin(a, ip, list)
	for _, hook := range []string{"prerouting", "output"} {
		chain := name + "-" + hook
		of := "inet " + kernel.Table + " " + chain
		script := []string{"add table inet " + kernel.Table, "add chain " + of + " { type nat hook " + hook + " priority -96; policy accept; }"}
		for _, m := range list {
			on := ""
			if !m.every() {
				on = w.ip + " daddr " + m.hostIP.String() + " "
			}
			to := fmt.Sprintf("%s:%d", ip.Addr(), m.container)
			if !v4 {
				to = fmt.Sprintf("[%s]:%d", ip.Addr(), m.container)
			}
			script = append(script, fmt.Sprintf(`add rule %s fib daddr type local %s%s dport %d %s dnat %s to %s comment "%s"`,
				of, on, m.protocol, m.hostPort, conditions, w.ip, to, a.Mark()))
		}
		out = append(out, &kernel.Command{
			Probe: []string{"nft", "list chain " + of},
			Do:    []string{"nft", strings.Join(script, "; ")},
			Undo:  []string{"nft", "flush chain " + of + "; delete chain " + of},
		})
	}
	return out
}
