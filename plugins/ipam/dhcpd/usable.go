package dhcpd

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// isUnicast reports whether an address can be that of one host.
func isUnicast(a netip.Addr) bool {
	if a.Is4() {
		return (a.IsGlobalUnicast() || a.IsLinkLocalUnicast()) && a.As4()[0] != 0
	}
	return a.IsGlobalUnicast() && !a.Is4In6()
}

// isReserved reports whether an address is the one of its subnet or the broadcast address there.
func isReserved(a netip.Addr, subnet netip.Prefix) bool {
	if !a.Is4() || subnet.Bits() > 30 || !subnet.Contains(a) {
		return false
	}
	host := ^uint32(0) >> subnet.Bits()
	b := a.As4()
	n := (uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])) & host
	return n == 0 || n == host
}

// refuse4 returns an error if no host can use the address that a message assigns.
func (p *v4) refuse4(m *dhcpv4.DHCPv4) error {
	a := p.config(m).IPs[0].Address
	if !isUnicast(a.Addr()) || isReserved(a.Addr(), a) {
		return &refusal{fmt.Sprintf("%s offers %s, which no host can use", serverOf(m), a)}
	}
	return nil
}

// refuseGateway returns why the client with an address cannot send through a gateway, or "".
func refuseGateway(gw netip.Addr, address netip.Prefix) string {
	switch {
	case gw == address.Addr():
		return "it is the container's own address"
	case !isUnicast(gw) || isReserved(gw, address):
		return "no host can use this address"
	}
	return ""
}

// isDomain reports whether a domain of a server is usable in resolv.conf(5).
func isDomain(d string) bool {
	return d != "" && !strings.ContainsFunc(d, func(r rune) bool { return r <= ' ' || r == 0x7f })
}

// domains returns the usable ones of a list.
func domains(list []string) (out []string) {
	for _, d := range list {
		if isDomain(d) {
			out = append(out, d)
		}
	}
	return out
}
