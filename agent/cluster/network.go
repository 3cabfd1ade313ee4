package cluster

import (
	"net/netip"
	"slices"
)

// DefaultNetwork is the name of the network in the host's namespace that containers join by default.
const DefaultNetwork = "default"

// Network is a set of subnets whose containers reach each other on all nodes.
type Network struct {
	Name string `json:"-"` // from the key

	// Isolated networks have their own namespace on every host and a VNI. Their subnets may overlap with other
	// networks.
	Isolated bool `json:"isolated,omitempty"`

	Subnets []Subnet `json:"subnets"`

	// Backends are tried in order for each pair of nodes; the first that fits connects them. Empty means vxlan.
	// Isolated networks always use vxlan.
	Backends []Backend `json:"backends,omitempty"`

	VNI   int      `json:"vni,omitempty"`   // of an isolated network; the first agent that needs it assigns a free one
	MTU   int      `json:"mtu,omitempty"`   // of the container links, in bytes; 0: computed from the underlay and the backends
	NAT   bool     `json:"nat,omitempty"`   // masquerade packets that leave the cluster's networks
	Peers []string `json:"peers,omitempty"` // isolated networks that can reach this one; both must name each other
}

// Subnet is a subnet of a network.
type Subnet struct {
	Name    string       `json:"name,omitempty"` // selected as "pool" in a configuration; "": used by default
	CIDR    netip.Prefix `json:"cidr"`
	Block   int          `json:"block,omitempty"`   // prefix length of a node's block; 0: 26, for IPv6 122
	Exclude []string     `json:"exclude,omitempty"` // addresses, prefixes or ranges ("10.0.0.1-10.0.0.9") that are never assigned
	Assign  string       `json:"assign,omitempty"`  // one of the constants Assign...; "": AssignBlock
}

// UsedByDefault reports whether requests without a pool use this subnet.
func (s Subnet) UsedByDefault() bool { return s.Name == "" && s.Assign != AssignCluster }

// Has reports whether a network has a subnet of a family.
func (n *Network) Has(six bool) bool {
	return slices.ContainsFunc(n.Subnets, func(s Subnet) bool { return s.CIDR.Addr().Is6() == six })
}

// How a subnet's addresses are assigned.
const (
	AssignBlock   = "block"   // nodes claim blocks of it
	AssignCluster = "cluster" // individually, for fixed addresses
	AssignPodCIDR = "podCIDR" // a node's blocks are the podCIDRs that Kubernetes gave its Node; only the default network
)

// Backend is one way to connect two nodes.
type Backend struct {
	Type string `json:"type"`           // "host-gw", "vxlan", "wireguard", "ipip", "bgp"
	When string `json:"when,omitempty"` // "direct": only nodes that share a link; "": any two

	VNI    int  `json:"vni,omitempty"`    // vxlan in the default network; 0: 1
	Port   int  `json:"port,omitempty"`   // UDP port of vxlan (0: 8472, the default of Linux and flannel) or wireguard (0: 51820)
	Direct bool `json:"direct,omitempty"` // vxlan: plain routes between nodes that share a link

	Keepalive int `json:"keepalive,omitempty"` // wireguard: seconds; 0: none
	Rotate    int `json:"rotate,omitempty"`    // wireguard: hours between new keys; 0: never

	ASN     uint32 `json:"asn,omitempty"`     // bgp: AS number of all nodes; 0: 64512
	BGPPeer []Peer `json:"bgpPeer,omitempty"` // bgp: routers that every node peers with; none: a full mesh of the nodes
}

// Peer is a BGP neighbour outside the cluster.
type Peer struct {
	Address netip.Addr `json:"address"`
	ASN     uint32     `json:"asn"`
}
