package doctor

import (
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/kernel"
)

// tunnelDropped reports third-party rules that certainly drop the VXLAN packets of other nodes. Other tunnels may pass
// such rules: connection tracking takes their packets for answers to this node's packets.
func tunnelDropped(f *Facts) (out []Finding) {
	if f.Ruleset == nil {
		return nil
	}
	for _, l := range f.Tunnels {
		local, port, is := l.VXLAN()
		if !is {
			continue
		}
		p := packet{in: f.linkOf(local), dst: local, proto: number("udp"), port: port, state: ctNew, local: true}
		if at := pass(f.Ruleset, "input", p); at != nil {
			out = append(out, Finding{Name: "tunnel-dropped", Problem: fmt.Sprintf("the packets of other nodes to the tunnel %s (UDP port %d) are dropped by %s", l.Name, port, at.where()),
				Effect: "containers do not reach containers on other nodes", Fix: at.accept(local, port)})
		}
	}
	return out
}

// linkOf returns the link with an address, or nil if packets to the address arrive on other links.
func (f *Facts) linkOf(a netip.Addr) *kernel.LinkInfo {
	for _, h := range f.Host.Addrs {
		if h.Prefix.Addr() != a {
			continue
		}
		if l := byIndex(f.Host, h.Index); l != nil && l.Name != "lo" && l.Kind != "dummy" {
			return l
		}
	}
	return nil
}

// accept returns the command that lets UDP packets to a port of this host through.
func (e *end) accept(local netip.Addr, port uint16) string {
	if e.rule != nil {
		return e.fix(local)
	}
	if family := e.chain.Family; family != "inet" && e.chain.Table == "filter" && e.chain.Name == "INPUT" { // the chain of iptables
		return fmt.Sprintf("%stables -w -I %s -p udp --dport %d -j ACCEPT", e.chain.Family, e.chain.Name, port)
	}
	return fmt.Sprintf("nft insert rule %s %s %s udp dport %d accept", e.chain.Family, e.chain.Table, e.chain.Name, port)
}
