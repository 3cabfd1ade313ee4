package podnet

import "github.com/fairlead/fairlead/podnet/request"

// These types are what a pod asks of its networks.
type (
	// Pod is a pod and the networks it requests.
	Pod = request.Pod
	// Network is a pod's request for a network.
	Network = request.Network
	// PortMapping is a host port that is forwarded to the pod.
	PortMapping = request.PortMapping
	// Bandwidth is a pair of rate limits; 0 is no limit.
	Bandwidth = request.Bandwidth
	// IPRange is a range from which the pod's address is allocated. Package ipam documents the rules.
	IPRange = request.IPRange
)

// These annotations of a pod select its networks, see package request.
const (
	AnnotationNetworks       = request.AnnotationNetworks
	AnnotationStatus         = request.AnnotationStatus
	AnnotationDefaultNetwork = request.AnnotationDefaultNetwork
	AnnotationIngress        = request.AnnotationIngress
	AnnotationEgress         = request.AnnotationEgress
	Prefix                   = request.Prefix
)

// DefaultIfNamePrefix is the prefix of the name of the first network's interface.
const DefaultIfNamePrefix = request.DefaultIfNamePrefix

// ErrUnsupported is the error for a setting of a pod that no plugin of the network declares as a capability.
var ErrUnsupported = request.ErrUnsupported

// ParseNetworks parses a selection of networks in either form of the Network Plumbing Working Group's standard. A name
// without a namespace gets the given one, which is the pod's.
func ParseNetworks(text, namespace string) ([]Network, error) {
	return request.ParseNetworks(text, namespace)
}

// ParsePort parses a host port, "[[HOSTIP:]HOSTPORT:]PORT[/PROTOCOL]", with an IPv6 address in brackets.
func ParsePort(s string) (PortMapping, error) { return request.ParsePort(s) }

// ParseRate parses a rate in bits per second, a Kubernetes quantity such as 10M or 64Ki.
func ParseRate(s string) (uint64, error) { return request.ParseRate(s) }
