package cluster

import (
	"net/netip"
	"slices"
)

// DefaultNetwork is the network that lives in the host's namespace and that every
// cluster has.
const DefaultNetwork = "default"

// Network is a set of subnets whose containers reach each other on all nodes.
type Network struct {
	Name string `json:"-"` // its key's

	// Isolated networks have a namespace of their own on every host, may have
	// addresses that others have too, and a VNI.
	Isolated bool `json:"isolated,omitempty"`

	Subnets []Subnet `json:"subnets"`

	// Backends are tried in order for each pair of nodes; the first that fits it
	// joins them. Empty: vxlan. An isolated network always has vxlan.
	Backends []Backend `json:"backends,omitempty"`

	VNI   int      `json:"vni,omitempty"`   // of an isolated network: the agent that first needs it takes a free one
	MTU   int      `json:"mtu,omitempty"`   // bytes of the containers' links; 0: what the underlay and the backends leave
	NAT   bool     `json:"nat,omitempty"`   // what leaves the cluster's networks has the host's address
	Peers []string `json:"peers,omitempty"` // isolated networks that reach this one; both must say so
}

// Subnet is a range of addresses of a network.
type Subnet struct {
	Name    string       `json:"name,omitempty"` // by which a configuration asks for it ("pool"); "": it is in every choice
	CIDR    netip.Prefix `json:"cidr"`
	Block   int          `json:"block,omitempty"`   // prefix length of a node's block; 0: 26, of IPv6 122
	Exclude []string     `json:"exclude,omitempty"` // addresses, prefixes or ranges ("10.0.0.1-10.0.0.9") that are not given
	Assign  string       `json:"assign,omitempty"`  // "block" (the default), or "cluster": one by one, for fixed addresses
}

// InEveryChoice tells whether nodes have blocks of a subnet for whoever names no pool.
func (s Subnet) InEveryChoice() bool { return s.Name == "" && s.Assign != AssignCluster }

// Has tells whether a network has a subnet of a family.
func (n *Network) Has(six bool) bool {
	return slices.ContainsFunc(n.Subnets, func(s Subnet) bool { return s.CIDR.Addr().Is6() == six })
}

// The ways in which a subnet's addresses are given.
const (
	AssignBlock   = "block"
	AssignCluster = "cluster"
)

// Backend is one way of joining two nodes.
type Backend struct {
	Type string `json:"type"`           // "host-gw", "vxlan", "wireguard", "ipip", "bgp"
	When string `json:"when,omitempty"` // "direct": only nodes that share a link; "": any two

	VNI    int  `json:"vni,omitempty"`    // vxlan of the default network; 0: 1
	Port   int  `json:"port,omitempty"`   // UDP, of vxlan (0: 8472, Linux' own, as flannel's) or wireguard (0: 51820)
	Direct bool `json:"direct,omitempty"` // vxlan: routes without the tunnel between nodes that share a link

	Keepalive int `json:"keepalive,omitempty"` // wireguard: seconds; 0: none
	Rotate    int `json:"rotate,omitempty"`    // wireguard: hours between new keys; 0: never

	ASN     uint32 `json:"asn,omitempty"`     // bgp: of all nodes; 0: 64512
	BGPPeer []Peer `json:"bgpPeer,omitempty"` // bgp: routers that every node speaks with; none: the nodes themselves, each with each
}

// Peer is a BGP neighbour that is no node.
type Peer struct {
	Address netip.Addr `json:"address"`
	ASN     uint32     `json:"asn"`
}
