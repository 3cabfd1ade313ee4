package podnet

import (
	"net/netip"

	"github.com/fairlead/fairlead/cni"
)

// PodStatus is the state of a pod and its attachments.
type PodStatus struct {
	ID          string       `json:"id"`
	Namespace   string       `json:"namespace,omitempty"`
	Name        string       `json:"name,omitempty"`
	UID         string       `json:"uid,omitempty"`
	Netns       string       `json:"netns"`
	Attachments []Attachment `json:"attachments"` // the default network's is first
	State       string       `json:"state"`
}

// These are the states of a pod.
const (
	StateReady       = "ready"          // set up
	StateGone        = "namespace gone" // set up, but its network namespace is gone: tear it down
	StateBusy        = "busy"           // an operation on it is running
	StateInterrupted = "interrupted"    // an operation was killed: tear the pod down, or set it up again
)

// Attachment is a pod's attachment to a network.
type Attachment struct {
	Network   string      `json:"network"`
	Namespace string      `json:"namespace,omitempty"` // as requested
	IfName    string      `json:"ifName"`
	Default   bool        `json:"default"`
	DeviceID  string      `json:"deviceID,omitempty"`
	Isolated  string      `json:"isolatedNetwork,omitempty"` // isolated network of Fairlead's cluster; "": none
	Result    *cni.Result `json:"-"`                         // of ADD; nil if unknown
}

// IPs returns the pod's addresses on its default network, in the order of the result. The first is the pod's address in
// Kubernetes.
func (s *PodStatus) IPs() []netip.Addr {
	for _, a := range s.Attachments {
		if a.Default {
			return a.IPs()
		}
	}
	return nil
}

// IPs returns the pod's addresses on the network.
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

// inside reports whether an address is on an interface in the pod. The address either refers to no interface, or to one
// with a sandbox.
func (a *Attachment) inside(ip cni.IP) bool {
	i := a.Result.InterfaceOf(ip)
	return i == nil || i.Sandbox != ""
}
