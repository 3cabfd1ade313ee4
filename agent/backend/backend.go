// Package backend connects a node with its peers. Its functions are pure: they compute the kernel objects that should
// exist on this node.
package backend

import (
	"errors"
	"net/netip"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/kernel"
)

// Underlay is the link to the other nodes.
type Underlay struct {
	Link  string
	Index int
	MTU   int // in bytes, of the links that packets leave through
	// Unbound: tunnels are not bound to the link, because the kernel would limit their MTU to the link's, which is smaller
	// than MTU. Packets leave through other links.
	Unbound bool
}

// Input is the input of a backend.
type Input struct {
	Network  *cluster.Network
	Conf     cluster.Backend
	Self     *cluster.Node
	Blocks   []netip.Prefix // this node's blocks of the network
	Underlay Underlay
	Peers    []Peer // peers that this backend connects
	MTU      int    // of the tunnel link, in bytes, computed by MTU
	KeyFile  string // wireguard: file with this node's private key

	In      kernel.Side // where the objects go: an isolated network's are in its namespace
	Program []string    // wireguard: command that starts a userspace device, see wgd
	Socket  string      // wireguard: socket of the userspace device
	Flannel bool        // vxlan: use flannel's link name and take over its link
	Learned []Learned   // bgp: routes from neighbours
	Others  []Peer      // bgp: peers that other backends connect
}

// Peer is another node.
type Peer struct {
	Node   *cluster.Node
	Dst    []netip.Prefix // its blocks of the network and single addresses in use on it
	Direct bool           // it shares the underlay link
}

// Learned is a route from a BGP neighbour with its best next hops.
type Learned struct {
	Dst netip.Prefix
	Via []netip.Addr
}

// Problem names what cannot be connected, with the reason: a peer, a next hop or a block.
type Problem struct {
	Node string
	Err  error
}

// thisNode is a reason that concerns this node, and with it every peer.
type thisNode string

func (t thisNode) Error() string { return string(t) }

// OfThisNode reports whether the reason is this node, and not the peer or the pair.
func (p Problem) OfThisNode() bool {
	_, is := errors.AsType[thisNode](p.Err)
	return is
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

// Of returns the backend of a type; ok is false for an unknown type.
func Of(typ string) (Backend, bool) {
	for _, b := range Backends() {
		if b.Type == typ {
			return b, true
		}
	}
	return Backend{}, false
}

// Protocol is the route protocol of the agent's routes, rules and neighbours.
const Protocol = 103

// LinkAlias returns the alias of one of the agent's links, for example "fairlead-agent vxlan default".
func LinkAlias(purpose string) string { return "fairlead-agent " + purpose }

// six reports whether the underlay uses IPv6, as it does for a node without an IPv4 address.
func (in *Input) six() bool { return underlay6(in.Self) }

func underlay6(n *cluster.Node) bool { return !n.Address(false).IsValid() }

// linkAlias returns a link's alias, which names the network.
func (in *Input) linkAlias(typ string) string { return LinkAlias(typ + " " + in.Network.Name) }

// own returns this node's addresses on a tunnel link: the first address of its first block of each family. The host
// uses them to reach containers on other nodes.
func (in *Input) own(link string) (out kernel.Objects) {
	for _, six := range []bool{false, true} {
		if a := first(in.Blocks, six); a.IsValid() {
			out = append(out, &kernel.Addr{In: in.In, Link: link, Prefix: netip.PrefixFrom(a, a.BitLen())})
		}
	}
	return out
}

// first returns the first address of the first block of a family, or else the first single address, or the zero
// address.
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
