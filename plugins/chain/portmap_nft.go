package chain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/plugins/ruleset"
)

// Chains that all mappings share.
const (
	portsChain = "hostports"
	masqChain  = "hostports-masquerade"
)

// A connection to a local address needs two map lookups per family, by address and port, then by port alone. So its
// cost does not grow with the number of ports.
const (
	anyPorts = "hostports-any" // by protocol and port: every address of the host
	onePorts = "hostports-one" // by host address, protocol and port
	allPorts = "hostports-masqall"
)

func anyType(f ruleset.Family) string {
	return "inet_proto . inet_service : " + f.Addr + " . inet_service"
}
func oneType(f ruleset.Family) string { return f.Addr + " . " + anyType(f) }
func endType(f ruleset.Family) string { return "inet_proto . " + f.Addr + " . inet_service" }

// base returns what all attachments of both families share.
func base() kernel.Objects {
	list := kernel.Objects{ruleset.Part("table", "", "")}
	for _, v4 := range []bool{true, false} {
		f := ruleset.FamilyOf(v4)
		list = append(list,
			ruleset.Part("map", onePorts+f.Digit, oneType(f)),
			ruleset.Part("map", anyPorts+f.Digit, anyType(f)),
			ruleset.Part("set", allPorts+f.Digit, endType(f)))
	}
	list = append(list,
		ruleset.Part("chain", portsChain, ""), ruleset.Part("chain", masqChain, ""),
		ruleset.Part("chain", "prerouting", ruleset.Prerouting), ruleset.Part("chain", "output", ruleset.Output), ruleset.Part("chain", "postrouting", ruleset.Postrouting))
	for _, v4 := range []bool{true, false} {
		f := ruleset.FamilyOf(v4)
		list = append(list,
			ruleset.Part("rule", portsChain, "dnat "+f.IP+" to "+f.IP+" daddr . meta l4proto . th dport map @"+onePorts+f.Digit),
			ruleset.Part("rule", portsChain, "meta nfproto ipv"+f.Digit+" dnat "+f.IP+" to meta l4proto . th dport map @"+anyPorts+f.Digit),
			ruleset.Part("rule", masqChain, "meta l4proto . "+f.IP+" daddr . th dport @"+allPorts+f.Digit+" masquerade"))
	}
	return append(list,
		ruleset.Part("rule", "postrouting", "ct status dnat jump "+masqChain),
		ruleset.Part("rule", "output", "fib daddr type local jump "+portsChain),
		ruleset.Part("rule", "prerouting", "fib daddr type local jump "+portsChain))
}

// maps returns the mappings of one address: elements, and the masquerade rules of its subnet.
func (c *portmap) maps(a *plugin.Attachment, ip netip.Prefix, list []mapping) kernel.Objects {
	f := ruleset.FamilyOf(ip.Addr().Is4())
	out := c.hairpin(a, ip, list)
	for _, m := range list {
		value := fmt.Sprintf("%s . %d", ip.Addr(), m.container)
		key := fmt.Sprintf("%s . %d", m.protocol, m.hostPort)
		if m.every() {
			out = append(out, ruleset.Element(anyPorts+f.Digit, anyType(f), key, value, a.Tag()))
		} else {
			out = append(out, ruleset.Element(onePorts+f.Digit, oneType(f), m.hostIP.String()+" . "+key, value, a.Tag()))
		}
	}
	return out
}

// hairpin returns the rules for senders that must be masqueraded so that replies come back: with snat the container's
// own subnet, whose members would answer each other directly, and the host's loopback; with masqAll everyone. It
// matches addresses only, because with bridge-nf-call-iptables the interface is the bridge.
func (c *portmap) hairpin(a *plugin.Attachment, ip netip.Prefix, list []mapping) (out kernel.Objects) {
	f := ruleset.FamilyOf(ip.Addr().Is4())
	set := allPorts + f.Digit
	switch {
	case !c.SNAT:
		return nil
	case !c.MasqAll:
		var group kernel.Objects
		set, group = hairpinGroup(a.Network, ip.Masked(), f)
		out = append(out, group...)
	}
	seen := map[string]bool{}
	for _, m := range list {
		key := fmt.Sprintf("%s . %s . %d", m.protocol, ip.Addr(), m.container)
		if !seen[key] {
			seen[key] = true
			out = append(out, ruleset.Element(set, endType(f), key, "", a.Tag()))
		}
	}
	return out
}

// hairpinGroup returns the set and the rules of one network's subnet.
func hairpinGroup(network string, subnet netip.Prefix, f ruleset.Family) (set string, list kernel.Objects) {
	name := kernel.Identifier("hostports", network, subnet.String())
	of := ruleset.Of(network, name)
	list = kernel.Objects{
		of("set", name, endType(f)),
		of("chain", name, ""),
		of("rule", name, f.IP+" saddr "+subnet.String()+" masquerade"),
	}
	if f.IP == "ip" {
		list = append(list, of("rule", name, "ip saddr 127.0.0.0/8 masquerade"))
	}
	return name, append(list, of("rule", masqChain, "meta l4proto . "+f.IP+" daddr . th dport @"+name+" jump "+name))
}

// fromLoopback lets the host reach its host ports at 127.0.0.1. It makes the container's link route the loopback
// network and drops loopback packets that did not come from lo (CVE-2020-8558).
func (c *portmap) fromLoopback(a *plugin.Attachment, r *cni.Result, target netip.Addr) kernel.Objects {
	link := hostLink(a, r, target)
	if link == "" {
		return nil
	}
	list := kernel.Objects{
		ruleset.Part("table", "", ""),
		ruleset.Part("chain", "loopback", ruleset.Raw),
		ruleset.Part("rule", "loopback", `iifname != "lo" ip daddr 127.0.0.0/8 drop`),
		ruleset.Part("rule", "loopback", `iifname != "lo" ip saddr 127.0.0.0/8 drop`),
	}
	if c.iptables() { // the kernel may lack nftables
		t := ruleset.FamilyOf(true).IPTables.Mangle()
		list = kernel.Objects{
			t.Chain("FL-LOOPBACK", true),
			t.Rule(true, "FL-LOOPBACK", "-d", "127.0.0.0/8", "-j", "DROP"),
			t.Rule(true, "FL-LOOPBACK", "-s", "127.0.0.0/8", "-j", "DROP"),
			t.First("PREROUTING", "!", "-i", "lo", "-j", "FL-LOOPBACK"),
		}
	}
	return append(list, &kernel.Sysctl{Key: "net/ipv4/conf/" + link + "/route_localnet", Value: "1", IsShared: true})
}

// hostLink returns the attachment's interface through which the host reaches the container: its bridge, or its end of
// the pair. If the host has none of the result's interfaces, it uses the route: results before 0.3.0 have no interfaces,
// and a result may have the socket of a virtual machine instead.
func hostLink(a *plugin.Attachment, r *cni.Result, target netip.Addr) string {
	by, err := a.Facts.LinkTo(target)
	var list []string
	for _, i := range r.Interfaces {
		if i.Sandbox == "" {
			list = append(list, i.Name)
		}
	}
	if err == nil && slices.Contains(list, by) {
		return by
	}
	for _, name := range list {
		if _, err := a.Facts.Link(kernel.Host, name); err == nil {
			return name
		}
	}
	return by
}

// conditional returns mappings with conditions in nft syntax, which only the nft command can parse. They use the
// attachment's own base chains.
func (c *portmap) conditional(a *plugin.Attachment, ip netip.Prefix, list []mapping) kernel.Objects {
	v4 := ip.Addr().Is4()
	f := ruleset.FamilyOf(v4)
	conditions := strings.Join(c.conditions(v4), " ")
	name := "hostports-" + kernel.Owner{Network: a.Network, ContainerID: a.ContainerID, IfName: a.IfName + f.Digit}.Hash()[:16]
	out := c.hairpin(a, ip, list)
	for _, hook := range []string{"prerouting", "output"} {
		chain := name + "-" + hook
		of := "inet " + kernel.Table + " " + chain
		script := []string{"add table inet " + kernel.Table, "add chain " + of + " { type nat hook " + hook + " priority -96; policy accept; }"}
		for _, m := range list {
			on := ""
			if !m.every() {
				on = f.IP + " daddr " + m.hostIP.String() + " "
			}
			to := fmt.Sprintf("%s:%d", ip.Addr(), m.container)
			if !v4 {
				to = fmt.Sprintf("[%s]:%d", ip.Addr(), m.container)
			}
			script = append(script, fmt.Sprintf(`add rule %s fib daddr type local %s%s dport %d %s dnat %s to %s comment "%s"`,
				of, on, m.protocol, m.hostPort, conditions, f.IP, to, a.Tag()))
		}
		out = append(out, &kernel.Command{
			Probe: []string{"nft", "list chain " + of},
			Do:    []string{"nft", strings.Join(script, "; ")},
			Undo:  []string{"nft", "flush chain " + of + "; delete chain " + of},
		})
	}
	return out
}
