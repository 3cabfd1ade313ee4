package desired

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/backend"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/kernel"
)

// Namespace is the desired state of an isolated network's namespace on this host. Its objects have the side
// kernel.Container: they are not in the host's namespace.
type Namespace struct {
	Network string
	NAT     bool // the network has NAT to the outside
	Objects kernel.Objects
}

// isolated adds the namespaces of this node: one for each network that is present, because traffic to a peer passes through
// the peer's.
func (w *State) isolated(s *cluster.Snapshot, self *cluster.Node, h Host, present []string, ends map[string]natLinkPair) {
	for _, name := range present {
		n := s.Networks[name]
		if n.VNI == 0 {
			w.NeedsVNI = true
			continue
		}
		out := backend.Compile(backend.Input{Network: n, Self: self, Blocks: s.BlocksOf(name, self.Name), Underlay: h.Underlay, Peers: append(peersOf(s, n, self), transitPeers(s, n, self)...), In: kernel.Container})
		w.Problems = append(w.Problems, out.Problems...)
		w.MTU[name], w.By[name] = out.MTU, out.By
		sp := Namespace{Network: name, NAT: n.NAT, Objects: disableReversePathFilter()}
		for _, six := range families(n) {
			sp.Objects = append(sp.Objects, kernel.Forwarding(kernel.Container, six, nil)...)
		}
		sp.Objects = append(sp.Objects, unreachableRoutes(s.BlocksOf(name, self.Name), kernel.Container)...)
		sp.Objects = append(sp.Objects, out.Objects...)
		sp.Objects = append(sp.Objects, peeringObjects(s, n, present, out.MTU)...)
		if e, ok := ends[name]; ok {
			sp.Objects = append(sp.Objects, e.inside(n, out.MTU)...)
			w.Objects = append(w.Objects, e.outside(n)...)
		} else if n.NAT {
			w.Problems = append(w.Problems, backend.Problem{Node: self.Name, Err: fmt.Errorf("network %s has no NAT on this host: all %d address pairs for NAT are in use", name, len(ends))})
		}
		w.Namespaces = append(w.Namespaces, sp)
	}
	for _, six := range []bool{false, true} {
		if slices.ContainsFunc(sortedKeys(ends), func(name string) bool { return slices.Contains(families(s.Networks[name]), six) }) {
			w.Objects = append(w.Objects, kernel.Forwarding(kernel.Host, six, h.Uplinks)...)
		}
	}
}

// Present returns the isolated networks that need a namespace on a node, sorted by name: those of which it has addresses,
// those that its plugins wait for, and their peers.
func Present(s *cluster.Snapshot, node string, wanted []string) (out []string) {
	of, has := Held(s, node), map[string]bool{}
	for _, name := range wanted {
		of[name] = true
	}
	for name := range of {
		if n := s.Networks[name]; n != nil && n.Isolated {
			has[name] = true
			for _, p := range n.Peers {
				if s.ArePeers(name, p) {
					has[p] = true
				}
			}
		}
	}
	return sortedKeys(has)
}

// Held returns the networks of which a node has addresses.
func Held(s *cluster.Snapshot, node string) map[string]bool {
	out := map[string]bool{}
	for x := range holdings(s) {
		if x.node == node {
			out[x.network] = true
		}
	}
	return out
}

// holding says that a node has addresses of a network.
type holding struct{ network, node string }

// holdings returns who has blocks and single addresses, some of them several times.
func holdings(s *cluster.Snapshot) iter.Seq[holding] {
	return func(yield func(holding) bool) {
		for _, b := range s.Blocks {
			if !yield(holding{b.Network, b.Node}) {
				return
			}
		}
		for _, a := range s.Addresses {
			if !yield(holding{a.Network, a.Node}) {
				return
			}
		}
	}
}

// transitPeers returns nodes that have the network's namespace but none of its addresses. Containers of peer networks
// send through that namespace.
func transitPeers(s *cluster.Snapshot, n *cluster.Network, self *cluster.Node) (out []backend.Peer) {
	has, own := map[string]bool{}, map[string]bool{}
	for x := range holdings(s) {
		switch {
		case x.network == n.Name:
			own[x.node] = true
		case x.node != self.Name && s.Nodes[x.node] != nil && s.ArePeers(n.Name, x.network):
			has[x.node] = true
		}
	}
	maps.DeleteFunc(has, func(node string, _ bool) bool { return own[node] })
	for _, name := range sortedKeys(has) {
		out = append(out, backend.Peer{Node: s.Nodes[name]})
	}
	return out
}

// disableReversePathFilter allows asymmetric routes between peered networks.
func disableReversePathFilter() (out kernel.Objects) {
	for _, of := range []string{"all", "default"} {
		out = append(out, &kernel.Sysctl{In: kernel.Container, Key: "net/ipv4/conf/" + of + "/rp_filter", Value: "0", IsShared: true})
	}
	return out
}

// nextHop returns the gateway of peerings and NAT links. The address is arbitrary, because the neighbour entry is
// static (RFC 3927, RFC 4291).
func nextHop(six bool) netip.Addr {
	if six {
		return netip.MustParseAddr("fe80::1")
	}
	return netip.MustParseAddr("169.254.0.1")
}

// peerLink returns the name of the link to a network in its peer's namespace.
func peerLink(network string) string {
	return kernel.Owner{Network: network}.LinkName("flp")
}

// peeringObjects returns the links from a network to its peers on this node, and the routes over them.
func peeringObjects(s *cluster.Snapshot, n *cluster.Network, present []string, mtu int) (out kernel.Objects) {
	for _, p := range present {
		if !s.ArePeers(n.Name, p) {
			continue
		}
		link, mac := peerLink(p), func(of, to string) string { return kernel.MAC("peer", of, to) }
		if n.Name < p { // the first by name creates the pair
			out = append(out, &kernel.NetnsVeth{
				In: kernel.Container, Name: link, MAC: mac(n.Name, p), PeerIn: local.NetnsPath(p), PeerName: peerLink(n.Name), PeerMAC: mac(p, n.Name),
				MTU: mtu, OwnerTag: backend.LinkAlias("peering"),
			})
		} else {
			out = append(out, &kernel.ExpectedLink{In: kernel.Container, Link: link})
		}
		out = append(out, via(link, mac(p, n.Name), s.Networks[p].Subnets)...)
	}
	return out
}

// via returns routes to subnets over a link, and the neighbour entry of its other end.
func via(link, mac string, subnets []cluster.Subnet) (out kernel.Objects) {
	added := map[bool]bool{}
	for _, x := range subnets {
		six := x.CIDR.Addr().Is6()
		if !added[six] {
			added[six] = true
			out = append(out, &kernel.Neigh{In: kernel.Container, Link: link, IP: nextHop(six), MAC: mac, Proto: backend.Protocol})
		}
		out = append(out, &kernel.Route{In: kernel.Container, Dst: x.CIDR, Via: nextHop(six), Link: link, OnLink: true, Proto: backend.Protocol})
	}
	return out
}

// natLinkPair is the veth pair between a network's namespace and the host, with two link-local addresses per family.
type natLinkPair struct {
	link     string // the host's end
	four, v6 [2]netip.Addr
}

// natSlots is the number of address pairs for NAT links on one host, including those reserved for clouds.
const natSlots = 1 << 14

// natLinks assigns each network with NAT its own slot: the one that its name hashes to, or the next free one.
func natLinks(s *cluster.Snapshot, present []string) map[string]natLinkPair {
	out, used := map[string]natLinkPair{}, map[int]bool{}
	for _, name := range present {
		if !s.Networks[name].NAT || len(out) == natSlots-cloudSlots {
			continue
		}
		owner := kernel.Owner{Network: name}
		raw, _ := hex.DecodeString(owner.Hash()[:4])
		slot := int(binary.BigEndian.Uint16(raw)) % natSlots
		for used[slot] || isCloudSlot(slot) {
			slot = (slot + 1) % natSlots
		}
		used[slot] = true
		e := natLinkPair{link: owner.LinkName("fln")}
		for i := range 2 {
			low := natLow(slot) + uint16(i)
			e.four[i] = netip.AddrFrom4([4]byte{169, 254, byte(low >> 8), byte(low)})
			e.v6[i] = netip.AddrFrom16([16]byte{0xfd, 0xfa, 0x1e, 0xad, 14: byte(low >> 8), 15: byte(low)})
		}
		out[name] = e
	}
	return out
}

// natLow returns the last two bytes of a slot's first address. The slots cover 169.254.64.0 to 169.254.191.255.
func natLow(slot int) uint16 { return uint16(natSlots + 2*slot) }

// isCloudSlot reports whether a slot's addresses may belong to a cloud's metadata services, such as 169.254.169.254.
// They are in 169.254.168.0/22.
func isCloudSlot(slot int) bool { return byte(natLow(slot)>>8)&^3 == 168 }

const cloudSlots = 4 * 256 / 2

const natLink = "fl-nat"

// inside returns the objects in the network's namespace: its end of the pair, a default route, and masquerading to one
// address.
func (e natLinkPair) inside(n *cluster.Network, mtu int) (out kernel.Objects) {
	mac := func(end string) string { return kernel.MAC("nat", n.Name, end) }
	out = append(out, &kernel.NetnsVeth{
		In: kernel.Container, Name: natLink, MAC: mac("inside"), PeerName: e.link, PeerMAC: mac("outside"), MTU: mtu, OwnerTag: backend.LinkAlias("nat " + n.Name),
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

func (e natLinkPair) pair(six bool) [2]netip.Addr {
	if six {
		return e.v6
	}
	return e.four
}

// outside returns the objects of the host's end.
func (e natLinkPair) outside(n *cluster.Network) (out kernel.Objects) {
	out = append(out, &kernel.ExpectedLink{Link: e.link})
	for _, six := range families(n) {
		a := e.pair(six)
		out = append(out, &kernel.Addr{Link: e.link, Prefix: netip.PrefixFrom(a[0], a[0].BitLen()-1)})
	}
	return out
}

// families returns the network's address families: false is IPv4, true is IPv6.
func families(n *cluster.Network) (out []bool) {
	for _, six := range []bool{false, true} {
		if n.Has(six) {
			out = append(out, six)
		}
	}
	return out
}
