package kernel

import (
	"fmt"
	"net/netip"
	"strconv"

	"golang.org/x/sys/unix"
)

// IPIP is a tunnel link of the agent whose far end is each route's gateway: IPv4 in
// IPv4 (type ipip), or, when its address is IPv6, IPv6 in IPv6 (type ip6tnl).
type IPIP struct {
	base
	In    Side       `json:",omitzero"`
	Name  string     `json:",omitzero"`
	Local netip.Addr `json:",omitzero"` // of this host
	MTU   int        `json:",omitzero"` // bytes
	Mark  string     `json:",omitzero"` // alias
}

const ( // linux/if_tunnel.h: IFLA_INFO_DATA of ipip and ip6tnl
	iptunLocal  = 2
	iptunRemote = 3
	iptunTTL    = 4
	iptunFlags  = 8
	iptunProto  = 9

	// linux/ip6_tunnel.h: no option of 8 bytes in each packet, which would count its
	// encapsulations.
	ip6IgnoreEncapLimit = 1
	ip6HopLimit         = 64
)

func (p *IPIP) kind() string      { return "ipip" }
func (p *IPIP) Side() Side        { return p.In }
func (p *IPIP) Shared() bool      { return false }
func (p *IPIP) links() []linkName { return []linkName{{p.In, p.Name}} }

func (p *IPIP) typ() string {
	if p.Local.Is6() {
		return "ip6tnl"
	}
	return "ipip"
}

func (p *IPIP) String() string {
	s := "ip link add " + p.Name
	if p.MTU > 0 {
		s += " mtu " + strconv.Itoa(p.MTU)
	}
	s += " up type " + p.typ()
	if p.Local.Is6() {
		return s + " mode ip6ip6 local " + p.Local.String() + " remote any encaplimit none"
	}
	return s + " local " + p.Local.String() + " remote any"
}

func (p *IPIP) ensure(e *Engine) error           { return e.ensureTunnel(p, p.tunnel()) }
func (p *IPIP) diff(e *Engine) ([]string, error) { return e.diffTunnel(p.tunnel()) }
func (p *IPIP) remove(e *Engine) error           { return e.removeTunnel(p.tunnel()) }

func (p *IPIP) tunnel() tunnel {
	return tunnel{side: p.In, name: p.Name, typ: p.typ(), mtu: p.MTU, mark: p.Mark, data: p.data, differs: p.differs}
}

func (p *IPIP) data(n *buf, _ int) {
	n.addr(iptunLocal, p.Local)
	if !p.Local.Is6() {
		return
	}
	n.u8(iptunTTL, ip6HopLimit)
	n.u8(iptunProto, unix.IPPROTO_IPV6)
	n.u32(iptunFlags, ip6IgnoreEncapLimit)
}

func (p *IPIP) differs(l *LinkInfo, _ int) (d []string) {
	if have := address(attr(l.data, iptunLocal)); have != p.Local {
		d = append(d, fmt.Sprintf("local is %s, want %s", have, p.Local))
	}
	if have := address(attr(l.data, iptunRemote)); have.IsValid() && !have.IsUnspecified() {
		d = append(d, fmt.Sprintf("remote is %s, want any", have))
	}
	return d
}
