package cluster

import "net/netip"

// Node is a host of the cluster. Its agent writes it, and nobody else.
type Node struct {
	Name string `json:"-"` // its key's

	// ID tells one machine from another of the same name: it is made once and
	// kept on the node's disk. An agent whose ID is not the one that stands there
	// refuses to start while the other is alive.
	ID string `json:"id"`

	// Addresses are those by which other nodes reach it, with the length of the
	// link's prefix: at most one of each family.
	Addresses []netip.Prefix `json:"addresses"`

	// WireGuard is its public key, base64, if it has one; Previous one is still
	// accepted while others learn of the new.
	WireGuard string `json:"wireGuard,omitempty"`
	Previous  string `json:"previous,omitempty"`

	Version string `json:"version,omitempty"` // of its agent

	// Flannel is set for a node of flannel's in the same cluster, which has a
	// subnet in flannel's keys: its VXLAN device's address.
	Flannel *FlannelNode `json:"-"`

	// Tunnel and Tunnel6 are the hardware addresses of the VXLAN links of one of our
	// own nodes, for IPv4 and IPv6, where flannel's keys tell them; "": they follow
	// from its name.
	Tunnel, Tunnel6 string `json:"-"`
}

// FlannelNode is what flannel's keys say of one of its nodes.
type FlannelNode struct {
	Type    string // its backend: "vxlan", "host-gw", "wireguard"
	MAC, V6 string // of its VXLAN device, of IPv4 and of IPv6
	Key     string // WireGuard's public key
}

// Address is the node's address of a family; the zero address if it has none.
func (n *Node) Address(six bool) netip.Addr { return n.Prefix(six).Addr() }

// Prefix is Address with its link's prefix length.
func (n *Node) Prefix(six bool) netip.Prefix {
	for _, a := range n.Addresses {
		if a.Addr().Is6() == six {
			return a
		}
	}
	return netip.Prefix{}
}

// Block is a range of a subnet of a network that belongs to a node. It does not
// expire: only the removal of its node, or an operator's word, makes it free.
type Block struct {
	Network string       `json:"-"` // its key's
	CIDR    netip.Prefix `json:"-"` // its key's
	Node    string       `json:"node"`
	Subnet  netip.Prefix `json:"subnet"` // of which it is a part

	// Release is an operator's word: the node gives no more addresses of it, and lets
	// it go when nothing holds one.
	Release bool `json:"release,omitempty"`
}

// Address is one address that the cluster gave, with whom it belongs to and where
// it is now. It stays its owner's while Node is "" (a pod that is on no node).
type Address struct {
	Network string     `json:"-"` // its key's
	IP      netip.Addr `json:"-"` // its key's

	Owner     string `json:"owner"`               // a pod's "NAMESPACE/NAME", or "container ID IFNAME"
	Fixed     bool   `json:"fixed,omitempty"`     // it stays its owner's when the container goes
	Node      string `json:"node,omitempty"`      // where it is; "": nowhere now
	Container string `json:"container,omitempty"` // which has it there
	IfName    string `json:"ifName,omitempty"`
}

// Endpoint is an interface of a container on a network, for the map and for policies.
type Endpoint struct {
	Node      string       `json:"-"` // these three are its key's
	Container string       `json:"-"`
	IfName    string       `json:"-"`
	Network   string       `json:"network"`
	IPs       []netip.Addr `json:"ips"`
	Pod       string       `json:"pod,omitempty"` // "NAMESPACE/NAME"
}
