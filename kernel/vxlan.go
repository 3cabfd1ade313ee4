package kernel

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// VXLAN is a tunnel link of the agent that neither learns nor floods: its neighbours and forwarding entries say where
// the peers are. Its socket is in the host's namespace wherever the link is, so a VNI and port can exist once per host.
// UDP checksums are the kernel's choice: IPv4 has them, and IPv6 requires them.
type VXLAN struct {
	base
	In       Side       `json:",omitzero"`
	Name     string     `json:",omitzero"`
	ID       int        `json:",omitzero"` // VNI, 24 bits
	Port     int        `json:",omitzero"` // UDP port of the peers and of this host
	Local    netip.Addr `json:",omitzero"` // address of this host, IPv4 or IPv6
	Link     string     `json:",omitzero"` // underlay, a link of the host, whose MTU limits the tunnel's; "": none
	MAC      string     `json:",omitzero"`
	MTU      int        `json:",omitzero"`     // bytes
	OwnerTag string     `json:"Mark,omitzero"` // alias
}

const ( // linux/if_link.h: IFLA_INFO_DATA of a vxlan
	vxlanID       = 1
	vxlanLink     = 3
	vxlanLocal    = 4
	vxlanLearning = 7
	vxlanPort     = 15 // network byte order
	vxlanLocal6   = 17
)

func (v *VXLAN) kind() string      { return "vxlan" }
func (v *VXLAN) Side() Side        { return v.In }
func (v *VXLAN) Shared() bool      { return false }
func (v *VXLAN) links() []linkName { return []linkName{{v.In, v.Name}} }

func (v *VXLAN) String() string {
	s := "ip link add " + v.Name
	if v.MAC != "" {
		s += " address " + v.MAC
	}
	if v.MTU > 0 {
		s += " mtu " + strconv.Itoa(v.MTU)
	}
	s += fmt.Sprintf(" up type vxlan id %d local %s", v.ID, v.Local)
	if v.Link != "" {
		s += " dev " + v.Link
	}
	if v.In == Container {
		s += " of the host"
	}
	return s + fmt.Sprintf(" dstport %d nolearning", v.Port)
}

func (v *VXLAN) ensure(e *Engine) error           { return e.ensureTunnel(v, v.tunnel()) }
func (v *VXLAN) diff(e *Engine) ([]string, error) { return e.diffTunnel(v.tunnel()) }
func (v *VXLAN) remove(e *Engine) error           { return e.removeTunnel(v.tunnel()) }

func (v *VXLAN) tunnel() tunnel {
	return tunnel{
		side: v.In, name: v.Name, typ: "vxlan", mac: v.MAC, mtu: v.MTU, port: v.Port, ownerTag: v.OwnerTag, underlay: v.Link, differs: v.differs,
		data: func(n *netlink.Buffer, under int) {
			n.Uint32(vxlanID, uint32(v.ID))
			if under != 0 {
				n.Uint32(vxlanLink, uint32(under))
			}
			local := uint16(vxlanLocal)
			if v.Local.Is6() {
				local = vxlanLocal6
			}
			n.Addr(local, v.Local)
			n.Uint8(vxlanLearning, 0)
			n.Uint16BE(vxlanPort, uint16(v.Port))
		},
	}
}

// VXLAN returns the local address and the UDP port of a VXLAN link. ok is false for another link and for a VXLAN link
// without a local address.
func (l *LinkInfo) VXLAN() (local netip.Addr, port uint16, ok bool) {
	raw := netlink.Attr(l.data, vxlanPort)
	if l.Kind != "vxlan" || len(raw) != 2 {
		return local, 0, false
	}
	local = netlink.Addr(netlink.Attr(l.data, vxlanLocal))
	if six := netlink.Addr(netlink.Attr(l.data, vxlanLocal6)); six.IsValid() {
		local = six
	}
	return local, binary.BigEndian.Uint16(raw), local.IsValid()
}

func (v *VXLAN) differs(l *LinkInfo, under int) (d []string) {
	if id := int(netlink.Uint32(netlink.Attr(l.data, vxlanID))); id != v.ID {
		d = append(d, fmt.Sprintf("VNI is %d, want %d", id, v.ID))
	}
	have, port, _ := l.VXLAN()
	if have != v.Local {
		d = append(d, fmt.Sprintf("local is %s, want %s", have, v.Local))
	}
	if dev := int(netlink.Uint32(netlink.Attr(l.data, vxlanLink))); dev != under {
		d = append(d, cmp.Or(v.Link, "no link")+" is not its underlay")
	}
	if int(port) != v.Port {
		d = append(d, fmt.Sprintf("port is %d, want %d", port, v.Port))
	}
	if netlink.Uint8(netlink.Attr(l.data, vxlanLearning)) != 0 {
		d = append(d, "learns addresses")
	}
	return d
}
