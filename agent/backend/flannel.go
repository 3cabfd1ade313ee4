package backend

import (
	"cmp"
	"net/netip"
	"strconv"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/internal/hwaddr"
	"github.com/fairlead/fairlead/kernel"
)

// In flannel's mode each address family has its own VXLAN link, over an underlay of the same family: flannel.1 and
// flannel-v6.1.

// overhead6 is the size of an IPv6 header minus that of an IPv4 header, in bytes.
const overhead6 = 20

func flannel(in *Input) (out kernel.Objects, problems []Problem) {
	for _, six := range []bool{false, true} {
		one := in.family(six)
		if len(one.Blocks) == 0 && len(one.Peers) == 0 || !one.Self.Address(six).IsValid() {
			continue
		}
		name := "flannel." + strconv.Itoa(in.vni())
		if six {
			name = "flannel-v6." + strconv.Itoa(in.vni())
			if !underlay6(in.Self) { // else the MTU has room for it
				one.MTU -= overhead6
			}
		}
		objects, errs := one.vxlanOn(name)
		out, problems = append(out, objects...), append(problems, errs...)
	}
	return out, problems
}

// family returns a copy of the input with one address family only.
func (in *Input) family(six bool) *Input {
	one := *in
	one.Self, one.Blocks, one.Peers = only(in.Self, six), ofFamily(in.Blocks, six), nil
	for _, p := range in.Peers {
		if p.Dst = ofFamily(p.Dst, six); len(p.Dst) > 0 {
			p.Node = only(p.Node, six)
			one.Peers = append(one.Peers, p)
		}
	}
	return &one
}

// only returns a copy of a node with the addresses of one family.
func only(n *cluster.Node, six bool) *cluster.Node {
	c := *n
	c.Addresses = ofFamily(n.Addresses, six)
	return &c
}

func ofFamily(list []netip.Prefix, six bool) (out []netip.Prefix) {
	for _, p := range list {
		if p.Addr().Is6() == six {
			out = append(out, p)
		}
	}
	return out
}

// TakeOver marks routes so that they replace the routes that flanneld created to the same destinations.
func TakeOver(list kernel.Objects) {
	for _, r := range kernel.Of[*kernel.Route](list) {
		if r.Type == kernel.Unicast {
			r.Takeover = true
		}
	}
}

// Lease returns the node's lease in flannel's format, without its subnets. It has the WireGuard key that the device uses
// now: flanneld knows one key of a node.
func Lease(n *cluster.Network, self *cluster.Node) *cluster.FlannelLease {
	conf := Configured(n)[len(Configured(n))-1]
	l := &cluster.FlannelLease{PublicIP: self.Address(false), Type: conf.Type, PublicKey: cmp.Or(self.Previous, self.WireGuard), FairleadNode: self.Name}
	if n.Has(true) {
		l.PublicIPv6 = self.Address(true)
	}
	if conf.Type == cluster.VXLAN {
		l.VNI = cmp.Or(conf.VNI, vxlanVNI)
		l.MAC = tunnelMAC(self, false, l.VNI)
		if l.PublicIPv6.IsValid() {
			l.MAC6 = tunnelMAC(self, true, l.VNI)
		}
	}
	return l
}

// tunnelMAC returns the MAC address of the VXLAN link of a Fairlead node.
func tunnelMAC(n *cluster.Node, six bool, vni int) string {
	mac := n.Tunnel
	if six {
		mac = n.Tunnel6
	}
	if mac != "" {
		if mac, err := hwaddr.Canonical(mac); err == nil {
			return mac
		}
	}
	return VXLANMAC(n.Name, vni)
}
