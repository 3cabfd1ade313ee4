// Package backend computes how a node reaches its peers. Its functions are pure: they map the known nodes to the kernel
// objects that should exist on this node.
package backend

import (
	"net/netip"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/kernel"
)

// Underlay is the link through which this node reaches the other nodes.
type Underlay struct {
	Link  string
	Index int
	MTU   int // in bytes
}

// Input is everything that a backend may use.
type Input struct {
	Network  *cluster.Network
	Conf     cluster.Backend
	Self     *cluster.Node
	Blocks   []netip.Prefix // this node's blocks of the network
	Underlay Underlay
	Peers    []Peer // the peers that this backend connects
	MTU      int    // of the tunnel link in bytes, computed from the underlay: see MTU
	KeyFile  string // wireguard: file with this node's private key

	In      kernel.Side // for an isolated network: the container's side is the network's namespace
	Program []string    // wireguard: command that starts a user-space device if the kernel has none, see wgd
	Socket  string      // wireguard: socket of the user-space device
	Flannel bool        // vxlan: use flannel's link name, and take over a link that flannel left
	Learned []Learned   // bgp: routes that neighbours announced
	Others  []Peer      // bgp: peers that other backends connect
}

// Peer is another node.
type Peer struct {
	Node   *cluster.Node
	Dst    []netip.Prefix // its blocks of the network, and single addresses that it has
	Direct bool           // shares the underlay link
}

// Learned is a route that a BGP neighbour announced, with its best next hops.
type Learned struct {
	Dst netip.Prefix
	Via []netip.Addr
}

// Problem is a peer that cannot be connected, and the reason.
type Problem struct {
	Node string
	Err  error
}

// Backend is one way to connect nodes.
type Backend struct {
	Type     string
	Overhead func(c cluster.Backend, underlay6 bool) int // bytes per packet
	Objects  func(*Input) (kernel.Objects, []Problem)
}

// Backends returns all backends.
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

// Of returns the backend of a type, and false if the type is unknown.
func Of(typ string) (Backend, bool) {
	for _, b := range Backends() {
		if b.Type == typ {
			return b, true
		}
	}
	return Backend{}, false
}

// Protocol is the protocol number of the agent's routes, rules and neighbours.
const Protocol = 103

// Mark returns the alias of one of the agent's links.
func Mark(words string) string { return "fairlead-agent " + words }

// six reports whether the underlay is IPv6, which it is for a node without an IPv4 address.
func (in *Input) six() bool { return underlay6(in.Self) }

func underlay6(n *cluster.Node) bool { return !n.Address(false).IsValid() }

// mark returns a link alias that contains the network's name.
func (in *Input) mark(typ string) string { return Mark(typ + " " + in.Network.Name) }

// own returns this node's own addresses on a tunnel link: the first address of its first block in each family. The host
// uses them to talk to containers on other nodes.
func (in *Input) own(link string) (out kernel.Objects) {
	for _, six := range []bool{false, true} {
		if a := first(in.Blocks, six); a.IsValid() {
			out = append(out, &kernel.Addr{In: in.In, Link: link, Prefix: netip.PrefixFrom(a, a.BitLen())})
		}
	}
	return out
}

// first returns the first address of the first block of a family, or else the first single address. It returns the zero
// address if there is neither.
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
