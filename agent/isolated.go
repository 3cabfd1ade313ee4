package agent

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/backend"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/kernel"
)

// Space is what the namespace of an isolated network should hold on this host. Its
// objects are of the container's side: the host's is the host's.
type Space struct {
	Network string
	NAT     bool // it has a way out
	Objects kernel.Objects
}

// isolated works out the spaces of this node: of each network of which it has
// blocks, and of those networks' peers, through which their containers go.
func (w *Wanted) isolated(s *cluster.Snapshot, self *cluster.Node, h Host, present []string, ends map[string]natEnd) {
	for _, name := range present {
		n := s.Networks[name]
		if n.VNI == 0 {
			w.needsVNI = true
			continue
		}
		out := backend.Compile(backend.Input{Network: n, Self: self, Blocks: s.BlocksOf(name, self.Name), Underlay: h.Underlay, Peers: append(peersOf(s, n, self), passing(s, n, self)...), In: kernel.Container})
		w.Problems = append(w.Problems, out.Problems...)
		w.MTU[name], w.By[name] = out.MTU, out.By
		sp := Space{Network: name, NAT: n.NAT, Objects: append(anyWay(), forwarding(n, kernel.Container)...)}
		sp.Objects = append(sp.Objects, unused(s.BlocksOf(name, self.Name), kernel.Container)...)
		sp.Objects = append(sp.Objects, out.Objects...)
		sp.Objects = append(sp.Objects, peerings(s, n, present, out.MTU)...)
		if e, ok := ends[name]; ok {
			sp.Objects = append(sp.Objects, e.inside(n, out.MTU)...)
			w.Objects = append(w.Objects, e.outside(n)...)
		} else if n.NAT {
			w.Problems = append(w.Problems, backend.Problem{Node: self.Name, Err: fmt.Errorf("network %s has no way out here: this host has %d that have one, and no addresses for more", name, len(ends))})
		}
		w.Spaces = append(w.Spaces, sp)
	}
	if len(ends) > 0 {
		w.Objects = append(w.Objects, &kernel.Sysctl{Key: "net/ipv4/ip_forward", Value: "1", IfZero: true, IsShared: true})
	}
}

// presence are the isolated networks that need a namespace on a node, in order.
func presence(s *cluster.Snapshot, node string) (out []string) {
	has := map[string]bool{}
	for _, b := range s.Blocks {
		if b.Node != node {
			continue
		}
		if n := s.Networks[b.Network]; n != nil && n.Isolated {
			has[n.Name] = true
			for _, p := range n.Peers {
				if s.Mutual(n.Name, p) {
					has[p] = true
				}
			}
		}
	}
	return sortedKeys(has)
}

// passing are nodes that have nothing of a network but its namespace, through which
// containers of its peers send to it.
func passing(s *cluster.Snapshot, n *cluster.Network, self *cluster.Node) (out []backend.Peer) {
	has := map[string]bool{}
	for _, b := range s.Blocks {
		if s.Mutual(n.Name, b.Network) && b.Node != self.Name && s.Nodes[b.Node] != nil {
			has[b.Node] = true
		}
	}
	for _, b := range s.Blocks {
		if b.Network == n.Name {
			delete(has, b.Node)
		}
	}
	for _, name := range sortedKeys(has) {
		out = append(out, backend.Peer{Node: s.Nodes[name]})
	}
	return out
}

// anyWay lets packets of peers come back another way than they went.
func anyWay() (out kernel.Objects) {
	for _, of := range []string{"all", "default"} {
		out = append(out, &kernel.Sysctl{In: kernel.Container, Key: "net/ipv4/conf/" + of + "/rp_filter", Value: "0", IsShared: true})
	}
	return out
}

// The next hops of peers and of the way out: any addresses, as the neighbours are
// written down. RFC 3927, RFC 4291.
func nextHop(six bool) netip.Addr {
	if six {
		return netip.MustParseAddr("fe80::1")
	}
	return netip.MustParseAddr("169.254.0.1")
}

// peerLink is the link to a network in the namespace of its peer.
func peerLink(network string) string {
	return kernel.Owner{Network: network}.LinkName("flp")
}

// peerings are the links to a network's peers here, and the routes by them.
func peerings(s *cluster.Snapshot, n *cluster.Network, present []string, mtu int) (out kernel.Objects) {
	for _, p := range present {
		if !s.Mutual(n.Name, p) {
			continue
		}
		link, mac := peerLink(p), func(of, to string) string { return kernel.MAC("peer", of, to) }
		if n.Name < p { // one of both makes it
			out = append(out, &kernel.NetnsVeth{
				In: kernel.Container, Name: link, MAC: mac(n.Name, p), PeerIn: local.NetnsPath(p), PeerName: peerLink(n.Name), PeerMAC: mac(p, n.Name),
				MTU: mtu, OwnerTag: backend.Mark("peering"),
			})
		} else {
			out = append(out, &kernel.ExpectedLink{In: kernel.Container, Link: link})
		}
		out = append(out, via(link, mac(p, n.Name), s.Networks[p].Subnets)...)
	}
	return out
}

// via are routes to subnets by a link with a neighbour at its other end.
func via(link, mac string, subnets []cluster.Subnet) (out kernel.Objects) {
	told := map[bool]bool{}
	for _, x := range subnets {
		six := x.CIDR.Addr().Is6()
		if !told[six] {
			told[six] = true
			out = append(out, &kernel.Neigh{In: kernel.Container, Link: link, IP: nextHop(six), MAC: mac, Proto: backend.Protocol})
		}
		out = append(out, &kernel.Route{In: kernel.Container, Dst: x.CIDR, Via: nextHop(six), Link: link, OnLink: true, Proto: backend.Protocol})
	}
	return out
}

// natEnd is a network's way out: a pair of links with two addresses of this host's own.
type natEnd struct {
	link     string // the host's end
	four, v6 [2]netip.Addr
}

// natPlaces is how many networks with a way out one host could have, were there no
// places of clouds.
const natPlaces = 1 << 14

// natEnds gives each network that has a way out a place of its own: the one that its
// name leads to, or the next free one.
func natEnds(s *cluster.Snapshot, present []string) map[string]natEnd {
	out, taken := map[string]natEnd{}, map[int]bool{}
	for _, name := range present {
		if !s.Networks[name].NAT || len(out) == natPlaces-cloudPlaces {
			continue
		}
		owner := kernel.Owner{Network: name}
		raw, _ := hex.DecodeString(owner.Hash()[:4])
		place := int(binary.BigEndian.Uint16(raw)) % natPlaces
		for taken[place] || isCloud(place) {
			place = (place + 1) % natPlaces
		}
		taken[place] = true
		e := natEnd{link: owner.LinkName("fln")}
		for i := range 2 {
			low := natLow(place) + uint16(i)
			e.four[i] = netip.AddrFrom4([4]byte{169, 254, byte(low >> 8), byte(low)})
			e.v6[i] = netip.AddrFrom16([16]byte{0xfd, 0xfa, 0x1e, 0xad, 14: byte(low >> 8), 15: byte(low)})
		}
		out[name] = e
	}
	return out
}

// natLow are the last two bytes of a place's first address: 169.254.64.0 to 169.254.191.255.
func natLow(place int) uint16 { return uint16(natPlaces + 2*place) }

// isCloud tells whether a place's addresses may be a cloud's services, for every host:
// 169.254.169.254 tells a machine who it is. They are in 169.254.168.0/22.
func isCloud(place int) bool { return byte(natLow(place)>>8)&^3 == 168 }

const cloudPlaces = 4 * 256 / 2

const natLink = "fl-nat"

// inside is the way out in the network's namespace: what leaves has one address.
func (e natEnd) inside(n *cluster.Network, mtu int) (out kernel.Objects) {
	mac := func(end string) string { return kernel.MAC("nat", n.Name, end) }
	out = append(out, &kernel.NetnsVeth{
		In: kernel.Container, Name: natLink, MAC: mac("inside"), PeerName: e.link, PeerMAC: mac("outside"), MTU: mtu, OwnerTag: backend.Mark("nat " + n.Name),
	})
	nft := func(what, text string) *kernel.NFT {
		return &kernel.NFT{Family: "inet", Table: backend.Table, Kind: what, Name: "postrouting", Text: text}
	}
	out = append(out, nft("chain", "type nat hook postrouting priority 100; policy accept"), nft("rule", `oifname "`+natLink+`" masquerade`))
	for _, six := range families(n) {
		a := e.pair(six)
		out = append(out, &kernel.Addr{In: kernel.Container, Link: natLink, Prefix: netip.PrefixFrom(a[1], a[1].BitLen()-1)})
		all := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		if six {
			all = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		}
		out = append(out, &kernel.Route{In: kernel.Container, Dst: all, Via: a[0], Link: natLink, Proto: backend.Protocol})
	}
	return out
}

func (e natEnd) pair(six bool) [2]netip.Addr {
	if six {
		return e.v6
	}
	return e.four
}

// outside is the host's end.
func (e natEnd) outside(n *cluster.Network) (out kernel.Objects) {
	out = append(out, &kernel.ExpectedLink{Link: e.link})
	for _, six := range families(n) {
		a := e.pair(six)
		out = append(out, &kernel.Addr{Link: e.link, Prefix: netip.PrefixFrom(a[0], a[0].BitLen()-1)})
	}
	return out
}

// families of a network: false is IPv4.
func families(n *cluster.Network) (out []bool) {
	for _, six := range []bool{false, true} {
		if n.Has(six) {
			out = append(out, six)
		}
	}
	return out
}
