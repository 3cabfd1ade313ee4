package kernel

import (
	"fmt"
	"net/netip"
	"strconv"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// IPIP is an IPv4-in-IPv4 tunnel link of the agent. The gateway of each route is the remote end. IPv6 has no such link:
// sit has one route for all remote ends, and with ip6tnl the kernel rejects a gateway on another link, with onlink or
// without.
type IPIP struct {
	base
	In       Side       `json:",omitzero"`
	Name     string     `json:",omitzero"`
	Local    netip.Addr `json:",omitzero"`     // address of this host
	MTU      int        `json:",omitzero"`     // bytes
	OwnerTag string     `json:"Mark,omitzero"` // alias
}

const ( // linux/if_tunnel.h: IFLA_INFO_DATA of ipip
	iptunLocal  = 2
	iptunRemote = 3
	iptunTTL    = 4

	ipipTTL = 64 // as of all packets of this host
)

func (p *IPIP) kind() string      { return "ipip" }
func (p *IPIP) Side() Side        { return p.In }
func (p *IPIP) Shared() bool      { return false }
func (p *IPIP) links() []linkName { return []linkName{{p.In, p.Name}} }

func (p *IPIP) String() string {
	s := "ip link add " + p.Name
	if p.MTU > 0 {
		s += " mtu " + strconv.Itoa(p.MTU)
	}
	return s + " up type ipip local " + p.Local.String() + " remote any ttl " + strconv.Itoa(ipipTTL)
}

func (p *IPIP) ensure(e *Engine) error           { return e.ensureTunnel(p, p.tunnel()) }
func (p *IPIP) diff(e *Engine) ([]string, error) { return e.diffTunnel(p.tunnel()) }
func (p *IPIP) remove(e *Engine) error           { return e.removeTunnel(p.tunnel()) }

func (p *IPIP) tunnel() tunnel {
	return tunnel{side: p.In, name: p.Name, typ: "ipip", mtu: p.MTU, ownerTag: p.OwnerTag, data: p.data, differs: p.differs}
}

func (p *IPIP) data(n *netlink.Buffer, _ int) {
	n.Addr(iptunLocal, p.Local)
	n.Uint8(iptunTTL, ipipTTL)
}

func (p *IPIP) differs(l *LinkInfo, _ int) (d []string) {
	if have := netlink.Addr(netlink.Attr(l.data, iptunLocal)); have != p.Local {
		d = append(d, fmt.Sprintf("local is %s, want %s", have, p.Local))
	}
	if have := netlink.Addr(netlink.Attr(l.data, iptunRemote)); have.IsValid() && !have.IsUnspecified() {
		d = append(d, fmt.Sprintf("remote is %s, want any", have))
	}
	return d
}
