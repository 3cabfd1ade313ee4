package podnet

import (
	"net/netip"

	"github.com/fairlead/fairlead/cni"
)

// Pod is what a pod wants of its networks.
type Pod struct {
	// ID is that of the pod's sandbox, CNI_CONTAINERID. What is done for a pod is
	// noted under it before it is done, so that TearDownPod needs nothing else.
	ID string `json:"id"`
	// Namespace, Name and UID are the pod's in Kubernetes; "" elsewhere.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	UID       string `json:"uid,omitempty"`
	// Netns is the path of the pod's network namespace.
	Netns string `json:"netns"`
	// Networks are those that the pod is to be on, the first being its default
	// network; none: the default network alone.
	Networks []Network `json:"networks,omitempty"`
	// Args are CNI_ARGS besides those of Kubernetes.
	Args [][2]string `json:"args,omitempty"`
}

// Network is a pod's wish to be on a network.
type Network struct {
	// Name is the network's; "": the default network.
	Name string `json:"name,omitempty"`
	// Namespace is that of the network's definition, for Options.Lookup. The
	// networks of a directory have none and are there for every pod.
	Namespace string `json:"namespace,omitempty"`
	// IfName is the interface's in the pod; "": eth0 for the pod's first network,
	// for the others net1, net2 and so on by position.
	IfName string `json:"ifName,omitempty"`

	// What follows reaches those plugins that declare the capability: see
	// docs/pods.md for the names.
	Ports          []PortMapping `json:"ports,omitempty"`
	Bandwidth      *Bandwidth    `json:"bandwidth,omitempty"`
	IPRanges       [][]IPRange   `json:"ipRanges,omitempty"`
	IPs            []string      `json:"ips,omitempty"` // addresses, with or without a prefix length
	MAC            string        `json:"mac,omitempty"`
	DNS            *cni.DNS      `json:"dns,omitempty"`
	Aliases        []string      `json:"aliases,omitempty"` // more names of the pod on the network
	CgroupPath     string        `json:"cgroupPath,omitempty"`
	InfinibandGUID string        `json:"infinibandGUID,omitempty"`
	DeviceID       string        `json:"deviceID,omitempty"` // such as a PCI address

	// DefaultRoute are the gateways, one a family, by which this network is the
	// pod's way out. Networks without it then have no default route.
	DefaultRoute []netip.Addr `json:"defaultRoute,omitempty"`
	// Args become args.cni of the network's plugins.
	Args map[string]any `json:"args,omitempty"`
}

// PortMapping is a host port that leads to the pod.
type PortMapping struct {
	HostPort      int    `json:"hostPort"` // 0: none, the entry is left out
	ContainerPort int    `json:"containerPort"`
	Protocol      string `json:"protocol"`         // "tcp", "udp" or "sctp"; "": tcp
	HostIP        string `json:"hostIP,omitempty"` // "": every address
}

// Bandwidth are limits; 0: none.
type Bandwidth struct {
	IngressRate  uint64 `json:"ingressRate,omitempty"`  // to the pod, bits a second
	IngressBurst uint64 `json:"ingressBurst,omitempty"` // bits; 0 with a rate: a tenth of a second, at least 2^21
	EgressRate   uint64 `json:"egressRate,omitempty"`   // from the pod, bits a second
	EgressBurst  uint64 `json:"egressBurst,omitempty"`  // bits, as above
}

// IPRange is a range of addresses that the pod's comes from; package ipam has the
// rules.
type IPRange struct {
	Subnet     string `json:"subnet"`
	RangeStart string `json:"rangeStart,omitempty"`
	RangeEnd   string `json:"rangeEnd,omitempty"`
	Gateway    string `json:"gateway,omitempty"`
}

// PodStatus is what a pod has.
type PodStatus struct {
	ID          string       `json:"id"`
	Namespace   string       `json:"namespace,omitempty"`
	Name        string       `json:"name,omitempty"`
	UID         string       `json:"uid,omitempty"`
	Netns       string       `json:"netns"`
	Attachments []Attachment `json:"attachments"` // the first is the default network's
	State       string       `json:"state"`
}

// The states of a pod.
const (
	StateReady  = "ready"          // set up
	StateGone   = "namespace gone" // set up, and its network namespace is gone since: tear it down
	StateAtWork = "at work"        // an operation on it has not ended
	StateCutOff = "cut off"        // an operation was: tear the pod down, or set it up again
)

// Attachment is a network that a pod is on.
type Attachment struct {
	Network   string      `json:"network"`
	Namespace string      `json:"namespace,omitempty"` // as it was asked for
	IfName    string      `json:"ifName"`
	Default   bool        `json:"default"`
	DeviceID  string      `json:"deviceID,omitempty"`
	Result    *cni.Result `json:"-"` // of ADD; nil if it is not known
}

// IPs are the addresses of the pod on its default network, in the order of the
// result: the first is the pod's address to Kubernetes.
func (s *PodStatus) IPs() []netip.Addr {
	for _, a := range s.Attachments {
		if a.Default {
			return a.IPs()
		}
	}
	return nil
}

// IPs are the addresses of the pod on the network.
func (a *Attachment) IPs() (out []netip.Addr) {
	if a.Result == nil {
		return nil
	}
	for _, ip := range a.Result.IPs {
		if a.inside(ip) {
			out = append(out, ip.Address.Addr())
		}
	}
	return out
}

// inside tells whether an address is on an interface of the pod: one that names
// no interface, or whose interface has a sandbox.
func (a *Attachment) inside(ip cni.IP) bool {
	i := ip.Interface
	return i == nil || *i < 0 || *i >= len(a.Result.Interfaces) || a.Result.Interfaces[*i].Sandbox != ""
}
