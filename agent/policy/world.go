// Package policy decides who may talk to whom. It compiles Kubernetes' NetworkPolicy and ClusterNetworkPolicy to the
// sets, maps and chains of one nftables table.
//
// The package is pure: it sends nothing to a kernel and reads no API.
package policy

import (
	"net/netip"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	policyv1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"
)

// World is everything that policy depends on.
type World struct {
	Namespaces      map[string]map[string]string // labels by name
	Endpoints       []*Endpoint
	Nodes           []*Node
	PodNetworks     []netip.Prefix // that pods have their addresses from
	Policies        []*networkingv1.NetworkPolicy
	ClusterPolicies []*policyv1alpha2.ClusterNetworkPolicy

	network string              // isolated; "": that of the host
	peers   map[string][]string // of isolated networks
}

// Endpoint is a pod or a container with network addresses of its own. Pods with the node's network and pods that have
// ended are no endpoints.
type Endpoint struct {
	Namespace, Name string
	UID             string // of the pod, as its node knows it
	Node            string
	Labels          map[string]string
	Addresses       []netip.Addr            // in all networks except isolated ones
	Isolated        map[string][]netip.Addr // in isolated networks, by network
	Announced       map[string][]netip.Addr // those that only the pod's annotation has, by isolated network; "": the others
	Created         time.Time               // of several endpoints with an address, the newest has it
	Ports           []NamedPort

	direct []netip.Addr // claimed by attachments whose packets the node does not forward, and not reported by the API
}

// NamedPort is a port of an endpoint that policies refer to by name.
type NamedPort struct {
	Name     string
	Protocol string // "TCP", "UDP" or "SCTP"
	Number   uint16
}

// Node is a machine.
type Node struct {
	Name      string
	Labels    map[string]string
	Addresses []netip.Addr
	Problem   string // why policy is not in force there, or ""
}

// Packet is the first packet of a connection, after destination NAT.
type Packet struct {
	Src, Dst netip.Addr
	Protocol string // "TCP", "UDP", "SCTP" or "ICMP"
	Port     uint16 // destination; 0 with ICMP
}
