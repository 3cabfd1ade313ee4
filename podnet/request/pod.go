// Package request has what a pod asks of its networks. It reads a pod's annotations, checks the request, and edits a
// network's configuration for it. Package podnet and the plugin fairlead-pod share it.
package request

import (
	"net/netip"

	"github.com/fairlead/fairlead/cni"
)

// Pod is a pod and the networks it requests.
type Pod struct {
	// ID is the ID of the pod's sandbox, CNI_CONTAINERID. The Manager notes each change under it in advance, so
	// TearDownPod needs only the ID.
	ID string `json:"id"`
	// Namespace, Name and UID are the pod's in Kubernetes, and "" elsewhere.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	UID       string `json:"uid,omitempty"`
	// Netns is the path of the pod's network namespace.
	Netns string `json:"netns"`
	// Networks are the pod's networks, its default network first. If there are none, the pod gets the default network
	// only.
	Networks []Network `json:"networks,omitempty"`
	// Args are CNI_ARGS in addition to those of Kubernetes.
	Args [][2]string `json:"args,omitempty"`
}

// Network is a pod's request for a network.
type Network struct {
	// Name is the network's name; "" is the default network.
	Name string `json:"name,omitempty"`
	// Namespace is the namespace of the network's definition, for Options.Lookup. Networks of the configuration
	// directories have none and are available to every pod.
	Namespace string `json:"namespace,omitempty"`
	// IfName is the interface name in the pod. The default is eth0 for the pod's first network, and net1, net2 and so
	// on by position for the others.
	IfName string `json:"ifName,omitempty"`

	// The following settings are passed to the plugins that declare the capability. docs/pods.md lists the names.
	Ports          []PortMapping `json:"ports,omitempty"`
	Bandwidth      *Bandwidth    `json:"bandwidth,omitempty"`
	IPRanges       [][]IPRange   `json:"ipRanges,omitempty"`
	IPs            []string      `json:"ips,omitempty"` // addresses, with or without a prefix length
	MAC            string        `json:"mac,omitempty"`
	DNS            *cni.DNS      `json:"dns,omitempty"`
	Aliases        []string      `json:"aliases,omitempty"` // additional names of the pod on the network
	Labels         string        `json:"labels,omitempty"`  // of the pod, for fairlead-policy: KEY=VALUE, with commas
	CgroupPath     string        `json:"cgroupPath,omitempty"`
	InfinibandGUID string        `json:"infinibandGUID,omitempty"`
	DeviceID       string        `json:"deviceID,omitempty"` // for example a PCI address

	// DefaultRoute makes this network the pod's default route, through these gateways, one per family. If it is empty and
	// not nil, the network has the default route of its configuration. The other networks then have no default route.
	DefaultRoute []netip.Addr `json:"defaultRoute,omitzero"`
	// Args become args.cni of the network's plugins.
	Args map[string]any `json:"args,omitempty"`
}

// PortMapping is a host port that is forwarded to the pod.
type PortMapping struct {
	HostPort      int    `json:"hostPort"` // 0: none, the entry is skipped
	ContainerPort int    `json:"containerPort"`
	Protocol      string `json:"protocol"`         // "tcp", "udp" or "sctp"; "": tcp
	HostIP        string `json:"hostIP,omitempty"` // "": every host address
}

// Bandwidth is a pair of rate limits; 0 is no limit.
type Bandwidth struct {
	IngressRate  uint64 `json:"ingressRate,omitempty"`  // to the pod, in bits per second
	IngressBurst uint64 `json:"ingressBurst,omitempty"` // in bits; 0 with a rate: a tenth of a second, at least 2^21
	EgressRate   uint64 `json:"egressRate,omitempty"`   // from the pod, in bits per second
	EgressBurst  uint64 `json:"egressBurst,omitempty"`  // in bits, default as above
}

// IPRange is a range from which the pod's address is allocated. Package ipam documents the rules.
type IPRange struct {
	Subnet     string `json:"subnet"`
	RangeStart string `json:"rangeStart,omitempty"`
	RangeEnd   string `json:"rangeEnd,omitempty"`
	Gateway    string `json:"gateway,omitempty"`
}
