package cluster

import (
	"net/netip"
	"slices"
	"time"
)

// Node is a host of the cluster. Only its agent writes the document.
type Node struct {
	Name string `json:"-"` // from the key

	// ID distinguishes machines with the same node name. It is created once and stored on the node's disk. An agent
	// with another ID refuses to start while the former one is alive.
	ID string `json:"id"`

	// Addresses are the node's addresses for other nodes, with the link's prefix length: at most one of each family.
	Addresses []netip.Prefix `json:"addresses"`

	// WireGuard is the node's public key in base64, if it has one. Previous is the old key, which stays valid during a
	// rotation.
	WireGuard string `json:"wireGuard,omitempty"`
	Previous  string `json:"previous,omitempty"`

	Version string `json:"version,omitempty"` // of the agent

	// PolicyProblem says why network policy is not in force on the node. It is "" if it is, or if it is not enabled.
	PolicyProblem string `json:"policyProblem,omitempty"`

	// PodCIDRs are the ranges that Kubernetes gave the Node. They are its blocks in subnets with AssignPodCIDR.
	PodCIDRs []netip.Prefix `json:"podCIDRs,omitempty"`

	// HostAddresses are the addresses in the Node's status in Kubernetes, and NetworkUnavailable is its condition of that
	// name: "True", "False" or "".
	HostAddresses      []netip.Addr `json:"hostAddresses,omitempty"`
	NetworkUnavailable string       `json:"networkUnavailable,omitempty"`

	// Flannel is set for a flannel node in the same cluster, which has a lease in flannel's keys or flannel's annotations.
	Flannel *FlannelNode `json:"flannel,omitempty"`

	// FlannelLease is the lease that the node's agent publishes in flannel's annotations, for flannel's nodes.
	FlannelLease *FlannelLease `json:"flannelLease,omitempty"`

	// Tunnel and Tunnel6 are the hardware addresses of a Fairlead node's VXLAN links for IPv4 and IPv6, if flanneld has
	// created them. "" means that they derive from the node's name.
	Tunnel  string `json:"tunnel,omitempty"`
	Tunnel6 string `json:"tunnel6,omitempty"`
}

// Published returns the part of the document that the node's agent writes.
func (n *Node) Published() *Node {
	own := *n
	own.PodCIDRs, own.HostAddresses, own.NetworkUnavailable = nil, nil, ""
	return &own
}

// FlannelNode contains a flannel node's settings from flannel's keys or annotations.
type FlannelNode struct {
	Type string `json:"type"`          // backend: "vxlan", "host-gw", "wireguard"
	MAC  string `json:"mac,omitempty"` // of the VXLAN link for IPv4
	V6   string `json:"v6,omitempty"`  // of the VXLAN link for IPv6
	Key  string `json:"key,omitempty"` // WireGuard public key

	Problem string `json:"problem,omitempty"` // why the settings are invalid
}

// Address returns the node's address of a family, or the zero address.
func (n *Node) Address(six bool) netip.Addr { return n.Prefix(six).Addr() }

// Prefix returns the node's address of a family with its link's prefix length.
func (n *Node) Prefix(six bool) netip.Prefix {
	for _, a := range n.Addresses {
		if a.Addr().Is6() == six {
			return a
		}
	}
	return netip.Prefix{}
}

// Block is a part of a subnet that belongs to a node. It does not expire. It becomes free only if its node is removed
// or an administrator releases it.
type Block struct {
	Network string       `json:"-"` // from the key
	CIDR    netip.Prefix `json:"-"` // from the key
	Node    string       `json:"node"`
	Machine string       `json:"machine,omitempty"` // ID of the node's machine; "": written by an older agent
	Subnet  netip.Prefix `json:"subnet"`            // the subnet that contains it

	// OfNode is set for a block that Kubernetes gave the node (Node.PodCIDRs). Nobody claims or releases it.
	OfNode bool `json:"-"`

	// Release is an administrator's request: the node assigns no more of its addresses and releases it once all are
	// free.
	Release bool `json:"release,omitempty"`
}

// Address is an individually assigned address with its owner and its current location. It stays with its owner while
// Node is "", which means that the pod is on no node.
type Address struct {
	Network string     `json:"-"` // from the key
	IP      netip.Addr `json:"-"` // from the key

	Owner     string `json:"owner"`               // a pod's "NAMESPACE/NAME", or "container ID IFNAME"
	Fixed     bool   `json:"fixed,omitempty"`     // stays with its owner when the container is deleted
	Node      string `json:"node,omitempty"`      // current node; "": none
	Machine   string `json:"machine,omitempty"`   // ID of the node's machine; "": none, or written by an older agent
	Container string `json:"container,omitempty"` // container on that node
	IfName    string `json:"ifName,omitempty"`
}

// Fixed lists a pod's fixed addresses on an interface. An administrator may have released some of them. Older agents
// wrote the name of a node instead.
type Fixed struct {
	IPs []netip.Addr `json:"ips"` // sorted, each once
}

// Add adds an address.
func (f *Fixed) Add(ip netip.Addr) {
	f.IPs = append(f.IPs, ip)
	slices.SortFunc(f.IPs, netip.Addr.Compare)
	f.IPs = slices.Compact(f.IPs)
}

// Endpoint is a container's interface on a network, for the map and for policies.
type Endpoint struct {
	Node      string       `json:"-"` // these three are from the key
	Container string       `json:"-"`
	IfName    string       `json:"-"`
	Network   string       `json:"network"`
	IPs       []netip.Addr `json:"ips"`
	Pod       string       `json:"pod,omitempty"` // "NAMESPACE/NAME"; a container that is not a pod has its ID as the name

	Labels map[string]string `json:"labels,omitempty"` // that policies select
	Since  time.Duration     `json:"since,omitempty"`  // time of the ADD since the node's boot, for an attachment with labels
}
