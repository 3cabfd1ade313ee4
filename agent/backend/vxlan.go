package backend

import (
	"cmp"
	"fmt"
	"net/netip"
	"strconv"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/internal/hwaddr"
	"github.com/fairlead/fairlead/kernel"
)

const (
	vxlanVNI  = cluster.DefaultVNI
	vxlanPort = cluster.DefaultPort
)

// vxlanOverhead returns the size of an Ethernet header and the headers of VXLAN (8), UDP (8) and IP (RFC 7348, section
// 5).
func vxlanOverhead(_ cluster.Backend, underlay6 bool) int {
	const ethernet, vxlan, udp, ipv4, ipv6 = 14, 8, 8, 20, 40
	if underlay6 {
		return ethernet + vxlan + udp + ipv6
	}
	return ethernet + vxlan + udp + ipv4
}

// VXLANName returns the name of the link for a VNI.
func VXLANName(vni int) string { return "fl-vx." + strconv.Itoa(vni) }

// VXLANMAC returns the hardware address of a node's link. It derives from the node's name, so it need not be published.
func VXLANMAC(node string, vni int) string { return kernel.MAC("vxlan", node, strconv.Itoa(vni)) }

func (in *Input) vni() int {
	if in.Network.Isolated {
		return in.Network.VNI
	}
	return cmp.Or(in.Conf.VNI, vxlanVNI)
}

// vxlan returns one link and, for each peer in this order, its neighbour entry, forwarding entry and routes. No address
// resolution is needed.
func vxlan(in *Input) (out kernel.Objects, problems []Problem) {
	if in.Flannel {
		return flannel(in)
	}
	return in.vxlanOn(VXLANName(in.vni()))
}

// vxlanOn returns a link with the given name, over the underlay's address family.
func (in *Input) vxlanOn(name string) (out kernel.Objects, problems []Problem) {
	vni, link := in.vni(), in.Underlay.Link
	if in.Underlay.Unbound {
		link = ""
	}
	out = append(out, &kernel.VXLAN{
		In: in.In, Name: name, ID: vni, Port: cmp.Or(in.Conf.Port, vxlanPort), Local: in.Self.Address(in.six()), Link: link,
		MAC: tunnelMAC(in.Self, in.six(), vni), MTU: in.MTU, OwnerTag: in.linkAlias("vxlan"),
	})
	out = append(out, in.own(name)...)
	macs := publishedMACs{in: in}
	for _, p := range in.Peers {
		dst := p.Dst
		if in.Conf.Direct && p.Direct {
			var routes kernel.Objects
			routes, dst = in.plain(p)
			out = append(out, routes...)
		}
		if len(dst) == 0 {
			continue
		}
		mac, err := in.macOf(p.Node)
		if err == nil && mac != VXLANMAC(p.Node.Name, vni) {
			err = macs.claim(mac, p.Node.Name)
		}
		if err != nil {
			problems = append(problems, Problem{p.Node.Name, err})
			continue
		}
		out = append(out, in.through(p, dst, name, mac)...)
	}
	return out, problems
}

// publishedMACs are the hardware addresses that nodes published instead of those that derive from their names.
type publishedMACs struct {
	in        *Input
	derived   map[string]string // node by the address that derives from its name; nil until needed
	published map[string]string // node by address
}

// claim returns an error if an address that a node published is another node's: this node's packets would go to the wrong
// one. The owner of a derived address always keeps it.
func (m *publishedMACs) claim(mac, node string) error {
	if m.derived == nil {
		in, vni := m.in, m.in.vni()
		m.derived = map[string]string{VXLANMAC(in.Self.Name, vni): in.Self.Name}
		m.published = map[string]string{tunnelMAC(in.Self, in.six(), vni): in.Self.Name}
		for _, p := range in.Peers {
			m.derived[VXLANMAC(p.Node.Name, vni)] = p.Node.Name
		}
	}
	for _, of := range []map[string]string{m.derived, m.published} {
		if other, taken := of[mac]; taken {
			return fmt.Errorf("vxlan: node %s published the hardware address %s of node %s", node, mac, other)
		}
	}
	m.published[mac] = node
	return nil
}

// macOf returns the hardware address of a peer's link. The kernel rejects a forwarding entry for a group's address.
func (in *Input) macOf(n *cluster.Node) (string, error) {
	mac, where := tunnelMAC(n, in.six(), in.vni()), "node "+n.Name
	if n.Flannel != nil {
		mac, where = n.Flannel.MAC, "flannel's lease of "+n.Name
		if in.six() {
			mac = n.Flannel.V6
		}
	}
	raw, err := hwaddr.Parse(mac)
	if err == nil && !hwaddr.IsUnicast(raw) {
		err = fmt.Errorf("%s cannot be the hardware address of a link", mac)
	}
	if err != nil {
		return "", fmt.Errorf("vxlan: %s: %w", where, err)
	}
	return hwaddr.Format(raw), nil
}

// through returns a peer's objects on the tunnel. The gateway of its routes is an address in its first block. That
// address only resolves to the peer's hardware address.
func (in *Input) through(p Peer, dst []netip.Prefix, link, mac string) (out kernel.Objects) {
	var gateway, gateway6 netip.Addr
	out = make(kernel.Objects, 0, 3+len(dst))
	for _, six := range []bool{false, true} {
		if gw := first(dst, six); gw.IsValid() {
			if six {
				gateway6 = gw
			} else {
				gateway = gw
			}
			out = append(out, &kernel.Neigh{In: in.In, Link: link, IP: gw, MAC: mac, Proto: Protocol})
		}
	}
	out = append(out, &kernel.FDB{In: in.In, Link: link, MAC: mac, Dst: p.Node.Address(in.six())})
	for _, d := range dst {
		via := gateway
		if d.Addr().Is6() {
			via = gateway6
		}
		out = append(out, &kernel.Route{In: in.In, Dst: d, Via: via, Link: link, OnLink: true, Proto: Protocol})
	}
	return out
}
