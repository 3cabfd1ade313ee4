// Package backend joins a node with its peers: pure functions from what is known
// of them to the kernel objects that should exist here.
package backend

import (
	"net/netip"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/kernel"
)

// Underlay is the link by which this node reaches the others.
type Underlay struct {
	Link  string
	Index int
	MTU   int // bytes
}

// Input is all that a backend may know.
type Input struct {
	Network  *cluster.Network
	Conf     cluster.Backend
	Self     *cluster.Node
	Blocks   []netip.Prefix // this node's, of the network
	Underlay Underlay
	Peers    []Peer // those that this backend joins
	MTU      int    // bytes of the tunnel's link, worked out from the underlay: see MTU
	KeyFile  string // wireguard: this node's private key

	In      kernel.Side // of an isolated network: the container's side is its namespace
	Program []string    // wireguard: what starts a device where the kernel has none, see wgd
	Socket  string      // wireguard: of that device
	Flannel bool        // vxlan: the link has flannel's name, and is taken over where flannel left it
	Learned []Learned   // bgp: what neighbours said
	Others  []Peer      // bgp: those that other backends join
}

// Peer is another node.
type Peer struct {
	Node   *cluster.Node
	Dst    []netip.Prefix // its blocks of the network, and single addresses that are there
	Direct bool           // it shares the underlay's link
}

// Learned is a route that a BGP neighbour told, with the best next hops.
type Learned struct {
	Dst netip.Prefix
	Via []netip.Addr
}

// Problem is a peer that cannot be joined, by name, and why.
type Problem struct {
	Node string
	Err  error
}

// Backend is one way of joining nodes.
type Backend struct {
	Type     string
	Overhead func(c cluster.Backend, underlay6 bool) int // bytes of each packet
	Objects  func(*Input) (kernel.Objects, []Problem)
}

// Backends are all there are.
func Backends() []Backend {
	none := func(cluster.Backend, bool) int { return 0 }
	return []Backend{
		{cluster.HostGW, none, hostGW},
		{cluster.VXLAN, vxlanOverhead, vxlan},
		{cluster.WireGuard, wireguardOverhead, wireguard},
		{cluster.IPIP, ipipOverhead, ipip},
		{cluster.BGP, none, bgp},
	}
}

// Of finds a backend by its type; one that is not valid has none.
func Of(typ string) (Backend, bool) {
	for _, b := range Backends() {
		if b.Type == typ {
			return b, true
		}
	}
	return Backend{}, false
}

// Protocol marks the agent's routes, rules and neighbours.
const Protocol = 103

// Mark is the alias of a link of the agent's.
func Mark(words string) string { return "fairlead-agent " + words }

// six tells whether the underlay is IPv6: it is for a node that has no IPv4 address.
func (in *Input) six() bool { return underlay6(in.Self) }

func underlay6(n *cluster.Node) bool { return !n.Address(false).IsValid() }

// mark names the network in a link's alias.
func (in *Input) mark(typ string) string { return Mark(typ + " " + in.Network.Name) }

// own are this node's own addresses on a tunnel's link: the first of its first block of
// each family, from which the host itself speaks with containers elsewhere.
func (in *Input) own(link string) (out kernel.Objects) {
	for _, six := range []bool{false, true} {
		if a := first(in.Blocks, six); a.IsValid() {
			out = append(out, &kernel.Addr{In: in.In, Link: link, Prefix: netip.PrefixFrom(a, a.BitLen())})
		}
	}
	return out
}

// first is the first address of the first block of a family, else the first single
// address; the zero address if there is neither.
func first(list []netip.Prefix, six bool) (a netip.Addr) {
	for _, p := range list {
		if p.Addr().Is6() != six {
			continue
		}
		if !p.IsSingleIP() {
			return p.Masked().Addr()
		}
		if !a.IsValid() {
			a = p.Addr()
		}
	}
	return a
}
