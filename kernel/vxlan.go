package kernel

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"
)

// VXLAN is a tunnel link of the agent that learns nothing and floods nothing: what
// it knows of peers are its neighbours and forwarding entries. Its socket is the
// host's also where the link is born in another namespace, so a VNI and port are one
// host's. Checksums of UDP are the kernel's choice: IPv4 with, IPv6 always with.
type VXLAN struct {
	base
	In    Side       `json:",omitzero"`
	Name  string     `json:",omitzero"`
	ID    int        `json:",omitzero"` // VNI, 24 bits
	Port  int        `json:",omitzero"` // UDP, of the peers and this host's
	Local netip.Addr `json:",omitzero"` // of this host, IPv4 or IPv6
	Link  string     `json:",omitzero"` // the underlay, of the host
	MAC   string     `json:",omitzero"`
	MTU   int        `json:",omitzero"` // bytes
	Mark  string     `json:",omitzero"` // alias
}

const ( // linux/if_link.h: IFLA_INFO_DATA of a vxlan
	vxlanID       = 1
	vxlanLink     = 3
	vxlanLocal    = 4
	vxlanLearning = 7
	vxlanPort     = 15 // in network order
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
	s += fmt.Sprintf(" up type vxlan id %d local %s dev %s", v.ID, v.Local, v.Link)
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
		side: v.In, name: v.Name, typ: "vxlan", mac: v.MAC, mtu: v.MTU, mark: v.Mark, underlay: v.Link, differs: v.differs,
		data: func(n *buf, under int) {
			n.u32(vxlanID, uint32(v.ID))
			n.u32(vxlanLink, uint32(under))
			local := uint16(vxlanLocal)
			if v.Local.Is6() {
				local = vxlanLocal6
			}
			n.addr(local, v.Local)
			n.u8(vxlanLearning, 0)
			n.be16(vxlanPort, uint16(v.Port))
		},
	}
}

func (v *VXLAN) differs(l *LinkInfo, under int) (d []string) {
	if id := int(num32(attr(l.data, vxlanID))); id != v.ID {
		d = append(d, fmt.Sprintf("VNI is %d, want %d", id, v.ID))
	}
	have := address(attr(l.data, vxlanLocal))
	if six := address(attr(l.data, vxlanLocal6)); six.IsValid() {
		have = six
	}
	if have != v.Local {
		d = append(d, fmt.Sprintf("local is %s, want %s", have, v.Local))
	}
	if dev := int(num32(attr(l.data, vxlanLink))); dev != under {
		d = append(d, v.Link+" is not its underlay")
	}
	if port := attr(l.data, vxlanPort); len(port) == 2 && int(binary.BigEndian.Uint16(port)) != v.Port {
		d = append(d, fmt.Sprintf("port is %d, want %d", binary.BigEndian.Uint16(port), v.Port))
	}
	if num8(attr(l.data, vxlanLearning)) != 0 {
		d = append(d, "learns addresses")
	}
	return d
}
