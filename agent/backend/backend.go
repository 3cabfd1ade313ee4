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
}

// Peer is another node.
type Peer struct {
	Node   *cluster.Node
	Dst    []netip.Prefix // its blocks of the network, and single addresses that are there
	Direct bool           // it shares the underlay's link
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

// Protocol marks the agent's routes, rules and neighbours.
const Protocol = 103

// Mark is the alias of a link of the agent's.
func Mark(words string) string { return "fairlead-agent " + words }
