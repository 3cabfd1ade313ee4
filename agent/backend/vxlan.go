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

// vxlanOverhead returns the size of the inner Ethernet header and the VXLAN (8), UDP (8) and IP headers: RFC 7348,
// section 5.
func vxlanOverhead(_ cluster.Backend, underlay6 bool) int {
	const ethernet, vxlan, udp, ipv4, ipv6 = 14, 8, 8, 20, 40
	if underlay6 {
		return ethernet + vxlan + udp + ipv6
	}
	return ethernet + vxlan + udp + ipv4
}

// VXLANName returns the link name for a VNI.
func VXLANName(vni int) string { return "fl-vx." + strconv.Itoa(vni) }

// VXLANMAC returns the MAC address of a node's link. It is derived from the node's name, so nodes need not publish it.
func VXLANMAC(node string, vni int) string { return kernel.MAC("vxlan", node, strconv.Itoa(vni)) }

func (in *Input) vni() int {
	if in.Network.Isolated {
		return in.Network.VNI
	}
	return cmp.Or(in.Conf.VNI, vxlanVNI)
}

// vxlan returns one link and for each peer its neighbour entry, forwarding entry and routes, in this order. So no
// packet leaves before its destination can be resolved.
func vxlan(in *Input) (out kernel.Objects, problems []Problem) {
	if in.Flannel {
		return flannel(in)
	}
	return in.vxlanOn(VXLANName(in.vni()))
}

// vxlanOn returns the objects for a link with the given name, over the address family that Self has.
func (in *Input) vxlanOn(name string) (out kernel.Objects, problems []Problem) {
	vni := in.vni()
	out = append(out, &kernel.VXLAN{
		In: in.In, Name: name, ID: vni, Port: cmp.Or(in.Conf.Port, vxlanPort), Local: in.Self.Address(in.six()), Link: in.Underlay.Link,
		MAC: tunnelMAC(in.Self, in.six(), vni), MTU: in.MTU, OwnerTag: in.mark("vxlan"),
	})
	out = append(out, in.own(name)...)
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
		if err != nil {
			problems = append(problems, Problem{p.Node.Name, err})
			continue
		}
		out = append(out, in.through(p, dst, name, mac)...)
	}
	return out, problems
}

func (in *Input) macOf(n *cluster.Node) (string, error) {
	if n.Flannel == nil {
		return tunnelMAC(n, in.six(), in.vni()), nil
	}
	mac := n.Flannel.MAC
	if in.six() {
		mac = n.Flannel.V6
	}
	mac, err := hwaddr.Canonical(mac)
	if err != nil {
		return "", fmt.Errorf("vxlan: flannel's key of %s: %w", n.Name, err)
	}
	return mac, nil
}

// through returns a peer's objects on the tunnel. Its routes use an address from its first block as the gateway. That
// address only resolves to the peer's MAC address.
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
