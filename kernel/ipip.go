package kernel

import (
	"fmt"
	"net/netip"
	"strconv"
)

// IPIP is a tunnel link of the agent over IPv4 whose far end is each route's gateway:
// of IPv4 packets (type ipip), or of IPv6 packets (type sit), whose gateways are the
// other hosts' addresses as IPv4-compatible ones: "via ::192.0.2.2".
type IPIP struct {
	base
	In    Side       `json:",omitzero"`
	Name  string     `json:",omitzero"`
	Six   bool       `json:",omitzero"` // carries IPv6
	Local netip.Addr `json:",omitzero"` // of this host
	MTU   int        `json:",omitzero"` // bytes
	Mark  string     `json:",omitzero"` // alias
}

const ( // linux/if_tunnel.h: IFLA_INFO_DATA of ipip and sit
	iptunLocal  = 2
	iptunRemote = 3
	iptunTTL    = 4

	ipipTTL = 64 // as of every packet of this host's; by itself sit has none
)

func (p *IPIP) kind() string      { return "ipip" }
func (p *IPIP) Side() Side        { return p.In }
func (p *IPIP) Shared() bool      { return false }
func (p *IPIP) links() []linkName { return []linkName{{p.In, p.Name}} }

func (p *IPIP) typ() string {
	if p.Six {
		return "sit"
	}
	return "ipip"
}

func (p *IPIP) String() string {
	s := "ip link add " + p.Name
	if p.MTU > 0 {
		s += " mtu " + strconv.Itoa(p.MTU)
	}
	return s + " up type " + p.typ() + " local " + p.Local.String() + " remote any ttl " + strconv.Itoa(ipipTTL)
}

func (p *IPIP) ensure(e *Engine) error           { return e.ensureTunnel(p, p.tunnel()) }
func (p *IPIP) diff(e *Engine) ([]string, error) { return e.diffTunnel(p.tunnel()) }
func (p *IPIP) remove(e *Engine) error           { return e.removeTunnel(p.tunnel()) }

func (p *IPIP) tunnel() tunnel {
	return tunnel{side: p.In, name: p.Name, typ: p.typ(), mtu: p.MTU, mark: p.Mark, data: p.data, differs: p.differs}
}

func (p *IPIP) data(n *buf, _ int) {
	n.addr(iptunLocal, p.Local)
	n.u8(iptunTTL, ipipTTL)
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
