package chain

import (
	"fmt"
	"net/netip"
	"strconv"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/plugin"
)

// defaultMasqBit is the bit of the packet mark that asks for masquerade.
const defaultMasqBit = 13

// tables is one family's command, in the nat table.
type tables string

func (t tables) command(args ...string) []string {
	return append([]string{string(t), "-w", "-t", "nat"}, args...)
}

// chain is a chain; an attachment's own goes with it, rules and all.
func (t tables) chain(name string, shared bool) *kernel.Command {
	return &kernel.Command{
		Probe: t.command("-n", "-L", name), Do: t.command("-N", name), Undo: t.command("-X", name), IsShared: shared,
	}
}

func (t tables) rule(shared bool, chain string, words ...string) *kernel.Command {
	with := func(verb string) []string { return t.command(append([]string{verb, chain}, words...)...) }
	return &kernel.Command{Probe: with("-C"), Do: with("-A"), Undo: with("-D"), IsShared: shared}
}

// first is a shared rule at the head of its chain: before the rules by which
// masquerade passes over a subnet's own traffic.
func (t tables) first(chain string, words ...string) *kernel.Command {
	c := t.rule(true, chain, words...)
	c.Do = t.command(append([]string{"-I", chain}, words...)...)
	return c
}

// iptablesObjects states the mappings of one address for hosts whose
// configuration asks for iptables: a chain an attachment.
func (c *portmap) iptablesObjects(a *plugin.Attachment, ip netip.Prefix, list []mapping) kernel.Objects {
	t := tables("iptables")
	if ip.Addr().Is6() {
		t = "ip6tables"
	}
	own := "FL-DN-" + kernel.Owner{Network: a.Network, ContainerID: a.ContainerID, IfName: a.IfName + ip.String()}.Hash()[:20]
	out := kernel.Objects{
		t.chain("FL-HOSTPORT", true),
		t.rule(true, "PREROUTING", "-m", "addrtype", "--dst-type", "LOCAL", "-j", "FL-HOSTPORT"),
		t.rule(true, "OUTPUT", "-m", "addrtype", "--dst-type", "LOCAL", "-j", "FL-HOSTPORT"),
	}
	mark := ""
	if c.SNAT {
		var shared kernel.Objects
		mark, shared = c.markChain(t)
		out = append(out, shared...)
	}
	out = append(out, t.chain(own, false))
	for _, m := range list {
		out = append(out, c.portRules(t, own, mark, ip, m)...)
	}
	entry := append([]string{}, c.conditions(ip.Addr().Is4())...)
	return append(out, t.rule(false, "FL-HOSTPORT", append(entry, "-m", "comment", "--comment", a.Mark(), "-j", own)...))
}

// markChain is the chain that marks packets for masquerade: an external one
// (kube-proxy's, say), or ours with the rule that acts on the mark.
func (c *portmap) markChain(t tables) (string, kernel.Objects) {
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
		t.chain(name, true),
		t.rule(true, name, "-j", "MARK", "--set-xmark", value),
		t.first("POSTROUTING", "-m", "mark", "--mark", value, "-j", "MASQUERADE"),
	}
}

func (c *portmap) portRules(t tables, chain, mark string, ip netip.Prefix, m mapping) (out kernel.Objects) {
	match := []string{"-p", m.protocol, "--dport", strconv.Itoa(int(m.hostPort))}
	if !m.every() {
		match = append(match, "-d", m.hostIP.String())
	}
	with := func(words ...string) *kernel.Command {
		return t.rule(false, chain, append(append([]string{}, match...), words...)...)
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
