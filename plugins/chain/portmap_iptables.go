package chain

import (
	"fmt"
	"net/netip"
	"strconv"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/plugins/ruleset"
)

// defaultMasqBit is the bit of the packet mark that requests masquerade.
const defaultMasqBit = 13

// iptablesObjects returns the mappings of one address for configurations that ask for iptables: one chain per
// attachment.
func (c *portmap) iptablesObjects(a *plugin.Attachment, ip netip.Prefix, list []mapping) kernel.Objects {
	t := ruleset.FamilyOf(ip.Addr().Is4()).IPTables
	own := "FL-DN-" + kernel.Owner{Network: a.Network, ContainerID: a.ContainerID, IfName: a.IfName + ip.String()}.Hash()[:20]
	out := kernel.Objects{
		t.Chain("FL-HOSTPORT", true),
		t.Rule(true, "PREROUTING", "-m", "addrtype", "--dst-type", "LOCAL", "-j", "FL-HOSTPORT"),
		t.Rule(true, "OUTPUT", "-m", "addrtype", "--dst-type", "LOCAL", "-j", "FL-HOSTPORT"),
	}
	mark := ""
	if c.SNAT {
		var shared kernel.Objects
		mark, shared = c.markChain(t)
		out = append(out, shared...)
	}
	out = append(out, t.Chain(own, false))
	for _, m := range list {
		out = append(out, c.portRules(t, own, mark, ip, m)...)
	}
	entry := append([]string{}, c.conditions(ip.Addr().Is4())...)
	return append(out, t.Rule(false, "FL-HOSTPORT", append(entry, "-m", "comment", "--comment", a.Tag(), "-j", own)...))
}

// markChain returns the chain that marks packets for masquerade: an external one (such as kube-proxy's), or our own
// with the rule that masquerades marked packets.
func (c *portmap) markChain(t ruleset.IPTables) (string, kernel.Objects) {
	if c.ExternalSetMarkChain != nil {
		return *c.ExternalSetMarkChain, nil
	}
	bit := defaultMasqBit
	if c.MarkMasqBit != nil {
		bit = *c.MarkMasqBit
	}
	value := fmt.Sprintf("%#x/%#x", uint32(1)<<bit, uint32(1)<<bit)
	name := "FL-SETMARK-" + strconv.Itoa(bit)
	return name, kernel.Objects{
		t.Chain(name, true),
		t.Rule(true, name, "-j", "MARK", "--set-xmark", value),
		t.First("POSTROUTING", "-m", "mark", "--mark", value, "-j", "MASQUERADE"),
	}
}

func (c *portmap) portRules(t ruleset.IPTables, chain, mark string, ip netip.Prefix, m mapping) (out kernel.Objects) {
	match := []string{"-p", m.protocol, "--dport", strconv.Itoa(int(m.hostPort))}
	if !m.every() {
		match = append(match, "-d", m.hostIP.String())
	}
	with := func(words ...string) *kernel.Command {
		return t.Rule(false, chain, append(append([]string{}, match...), words...)...)
	}
	switch {
	case mark == "":
	case c.MasqAll:
		out = append(out, with("-j", mark))
	default:
		out = append(out, with("-s", ip.Masked().String(), "-j", mark))
		if ip.Addr().Is4() {
			out = append(out, with("-s", "127.0.0.1", "-j", mark))
		}
	}
	to := netip.AddrPortFrom(ip.Addr(), m.container).String()
	return append(out, with("-j", "DNAT", "--to-destination", to))
}
