package doctor

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/kernel"
)

// filtered reports third-party rules that certainly drop packets from or to the container.
func filtered(f *Facts, a *Attachment) (out []Finding) {
	in := a.arrives(f)
	if in == nil || f.Ruleset == nil {
		return nil
	}
	for _, p := range a.Addrs {
		ip := p.Addr()
		up := a.upstream(f, ip.Is4())
		if up != nil && up.Index != in.Index {
			out = append(out, a.forwarded(f, packet{in: in, out: up, src: ip, state: ctNew}, "what it sends beyond the host")...)
			out = append(out, a.forwarded(f, packet{in: up, out: in, dst: ip, state: ctEstablished}, "the answers that come back to it")...)
		}
		out = append(out, a.input(f, in, ip)...)
		out = append(out, a.ported(f, in, up, ip)...)
		out = append(out, a.bridged(f, in, p)...)
	}
	return out
}

func (a *Attachment) forwarded(f *Facts, p packet, what string) []Finding {
	at := pass(f.Ruleset, "forward", p)
	if at == nil {
		return nil
	}
	addr := p.src
	if !addr.IsValid() {
		addr = p.dst
	}
	return []Finding{{Name: "forward-dropped", Problem: what + " is dropped by " + at.where(),
		Effect: "the container reaches this host and its neighbours only", Fix: at.fix(addr)}}
}

// input reports a rule that certainly drops everything that this container sends to its gateway. A firewall that merely
// rejects requests to the host is usual and not reported.
func (a *Attachment) input(f *Facts, in *kernel.LinkInfo, ip netip.Addr) []Finding {
	for _, gw := range a.Gateways {
		if gw.Is4() != ip.Is4() || !f.hasAddr(gw, in.Index) {
			continue
		}
		p := packet{in: in, src: ip, dst: gw, state: ctNew, local: true}
		if at := pass(f.Ruleset, "input", p); at != nil && at.rule != nil {
			return []Finding{{Name: "input-dropped", Problem: "packets to its gateway " + gw.String() + " are dropped by " + at.where(),
				Effect: "it does not reach services on this host, such as DNS", Fix: at.fix(ip)}}
		}
	}
	return nil
}

func (a *Attachment) ported(f *Facts, in, up *kernel.LinkInfo, ip netip.Addr) (out []Finding) {
	if up == nil || up.Index == in.Index {
		return nil
	}
	for _, port := range a.Ports {
		p := packet{in: up, out: in, dst: ip, state: ctNew, dnat: true, proto: number(port.Protocol), port: uint16(port.ContainerPort)}
		if at := pass(f.Ruleset, "forward", p); at != nil {
			out = append(out, Finding{Name: "host-port-dropped", Problem: fmt.Sprintf("packets to host port %d/%s are dropped by %s", port.HostPort, port.Protocol, at.where()),
				Effect: "other machines do not reach the container through its host port", Fix: at.fix(ip)})
		}
	}
	return out
}

// bridged reports drops within a bridge: with bridge-nf-call-iptables, bridged packets pass the forward chains as well.
func (a *Attachment) bridged(f *Facts, in *kernel.LinkInfo, p netip.Prefix) []Finding {
	key := "net/bridge/bridge-nf-call-iptables"
	if p.Addr().Is6() {
		key = "net/bridge/bridge-nf-call-ip6tables"
	}
	if f.Sysctls[key] != "1" || in.Kind != "bridge" {
		return nil
	}
	for _, b := range f.Attachments {
		if b == a || b.Bridge != a.Bridge {
			continue
		}
		for _, q := range b.Addrs {
			if q.Masked() != p.Masked() {
				continue
			}
			if at := pass(f.Ruleset, "forward", packet{in: in, out: in, src: p.Addr(), dst: q.Addr(), state: ctNew}); at != nil {
				return []Finding{{Name: "forward-dropped", Problem: "packets to its neighbours on " + in.Name + " pass the host's firewall (bridge-nf-call-iptables is 1) and are dropped by " + at.where(),
					Effect: "containers on one bridge do not reach each other", Fix: "sysctl -w " + strings.ReplaceAll(key, "/", ".") + "=0"}}
			}
		}
	}
	return nil
}

func number(protocol string) byte {
	return map[string]byte{"tcp": 6, "udp": 17, "sctp": 132}[strings.ToLower(protocol)]
}

// where describes what dropped a packet.
func (e *end) where() string {
	chain := "chain " + e.chain.Family + " " + e.chain.Table + " " + e.chain.Name
	if e.rule == nil {
		return "the policy of " + chain
	}
	s := fmt.Sprintf("rule %d of %s", e.rule.Handle, chain)
	if e.rule.Comment != "" {
		s += " (" + e.rule.Comment + ")"
	}
	return s
}

// fix returns the command that lets an address through: it deletes a rule that drops, or adds an exception before a
// policy.
func (e *end) fix(ip netip.Addr) string {
	of := e.chain.Family + " " + e.chain.Table + " " + e.chain.Name
	if e.rule != nil {
		return fmt.Sprintf("nft delete rule %s handle %d", of, e.rule.Handle)
	}
	family := "ip"
	if ip.Is6() {
		family = "ip6"
	}
	if (kernel.ForwardDropChain{Family: e.chain.Family, Table: e.chain.Table, Chain: e.chain.Name}).IPTables() {
		command := e.chain.Family + "tables -w -I " + e.chain.Name // iptables must write its own chain: it could not read a rule that nft adds
		return fmt.Sprintf("%s -s %s -j ACCEPT && %s -d %s -m conntrack --ctstate ESTABLISHED,RELATED,DNAT -j ACCEPT", command, ip, command, ip)
	}
	insert := "insert rule " + of + " " + family
	return fmt.Sprintf("nft '%s saddr %s accept; %s daddr %s ct state established,related accept; %s daddr %s ct status dnat accept'",
		insert, ip, insert, ip, insert, ip)
}

// taken reports a third-party rule that redirects a host port before Fairlead's rules.
func taken(f *Facts, a *Attachment) (out []Finding) {
	if f.Ruleset == nil {
		return nil
	}
	for _, port := range a.Ports {
		for _, p := range a.Addrs {
			to := f.hostAddr(a, port, p.Addr().Is4())
			if !to.IsValid() {
				continue
			}
			if at := f.earlier(packet{in: a.upstream(f, to.Is4()), dst: to, proto: number(port.Protocol), port: uint16(port.HostPort), state: ctNew, local: true}); at != nil {
				out = append(out, Finding{Name: "host-port-taken", Problem: fmt.Sprintf("packets to host port %d/%s are redirected by %s", port.HostPort, port.Protocol, at.where()),
					Effect: "other machines that use the host port reach another service", Fix: at.fix(to)})
			}
		}
	}
	return out
}

// hostAddr returns an address through which other machines reach a host port.
func (f *Facts) hostAddr(a *Attachment, port attach.Port, v4 bool) netip.Addr {
	if ip, err := netip.ParseAddr(port.HostIP); err == nil && !ip.IsUnspecified() {
		if ip.IsLoopback() || ip.Is4() != v4 {
			return netip.Addr{}
		}
		return ip
	}
	up := a.upstream(f, v4)
	for _, h := range f.Host.Addrs {
		if up != nil && h.Index == up.Index && h.Prefix.Addr().Is4() == v4 && h.Prefix.Addr().IsGlobalUnicast() {
			return h.Prefix.Addr()
		}
	}
	return netip.Addr{}
}

const ourPriority = -95 // priority of Fairlead's chains for host ports

func (f *Facts) earlier(p packet) *end {
	for _, c := range f.Ruleset.Base("prerouting", p.family()) {
		if c.Type != "nat" || c.Table == kernel.Table || c.Priority > ourPriority {
			continue
		}
		if at := walk(f.Ruleset, c, p, 0); at.verdict == "nat" && at.certain {
			return &at
		}
	}
	return nil
}

// dormant reports that Fairlead's table is dormant.
func dormant(f *Facts) []Finding {
	if f.Ruleset == nil {
		return nil
	}
	for _, c := range f.Ruleset.Chains {
		if c.Table == kernel.Table && c.Family == "inet" && c.Dormant {
			return []Finding{{Name: "table-dormant", Problem: "table inet " + kernel.Table + " is dormant (flags dormant)",
				Effect: "masquerade, host ports and protection do not work for any container", Fix: "nft add table inet " + kernel.Table}}
		}
	}
	return nil
}
