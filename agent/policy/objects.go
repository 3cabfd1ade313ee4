package policy

import (
	"encoding/json"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	v1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"
)

// Add adds an object of the Kubernetes API. It reports whether policy depends on objects of this type.
func (w *World) Add(o any) bool {
	switch o := o.(type) {
	case *corev1.Namespace:
		labels := maps.Clone(o.Labels)
		if labels == nil {
			labels = map[string]string{}
		}
		labels[corev1.LabelMetadataName] = o.Name // which the API server sets
		w.Namespaces[o.Name] = labels
	case *corev1.Pod:
		if e := FromPod(o); e != nil {
			w.Endpoints = append(w.Endpoints, e)
		}
	case *corev1.Node:
		w.Nodes = append(w.Nodes, FromNode(o))
	case *networkingv1.NetworkPolicy:
		w.Policies = append(w.Policies, o)
	case *v1alpha2.ClusterNetworkPolicy:
		w.ClusterPolicies = append(w.ClusterPolicies, o)
	default:
		return false
	}
	return true
}

// networkStatus is the annotation with a pod's networks, by the Network Plumbing Working Group's specification.
const networkStatus = "k8s.v1.cni.cncf.io/network-status"

// FromPod returns a pod as an endpoint. It returns nil for pods with the node's network, and for pods that have ended:
// their addresses are used again. A pod that is being deleted is an endpoint until it has ended.
func FromPod(p *corev1.Pod) *Endpoint {
	if p.Spec.HostNetwork || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return nil
	}
	uid := string(p.UID)
	if static := p.Annotations[corev1.MirrorPodAnnotationKey]; static != "" { // the pod stands for one of the kubelet's own
		uid = static
	}
	e := &Endpoint{
		Namespace: p.Namespace, Name: p.Name, UID: uid, Node: p.Spec.NodeName, Labels: p.Labels, Created: p.CreationTimestamp.Time,
		Ports: append(portsOf(sidecars(p)), portsOf(p.Spec.Containers)...),
	}
	for _, ip := range p.Status.PodIPs {
		e.Addresses = appendAddr(e.Addresses, ip.IP)
	}
	e.addNetworks(p.Annotations[networkStatus])
	return e
}

// mostAnnotated is the number of addresses of a pod's networks that count. Whoever creates a pod can write the annotation, and
// each address may be in many sets on every node.
const mostAnnotated = 128

// addNetworks adds the addresses of a pod's networks. If its default network is isolated, the API has these addresses as the
// pod's, too.
func (e *Endpoint) addNetworks(annotation string) {
	var networks []struct {
		IPs      []string `json:"ips"`
		Default  bool     `json:"default"`
		Isolated string   `json:"fairlead.io/isolated-network"`
	}
	if annotation == "" || json.Unmarshal([]byte(annotation), &networks) != nil {
		return
	}
	left := mostAnnotated
	for _, n := range networks {
		var addrs []netip.Addr
		for _, text := range n.IPs[:min(len(n.IPs), left)] {
			addrs = appendAddr(addrs, text)
		}
		left -= min(len(n.IPs), left)
		if n.Isolated != "" {
			e.addIsolated(n.Isolated, addrs, n.Default)
			continue
		}
		for _, a := range addrs {
			if !slices.Contains(e.Addresses, a) {
				e.Addresses = append(e.Addresses, a)
				e.announce("", a)
			}
		}
	}
}

// addIsolated adds addresses in an isolated network. The kubelet reports those of the pod's default network.
func (e *Endpoint) addIsolated(network string, addrs []netip.Addr, byDefault bool) {
	if e.Isolated == nil {
		e.Isolated = map[string][]netip.Addr{}
	}
	e.Isolated[network] = append(e.Isolated[network], addrs...)
	for _, a := range addrs {
		if i := slices.Index(e.Addresses, a); byDefault && i >= 0 {
			e.Addresses = slices.Delete(e.Addresses, i, i+1)
		} else {
			e.announce(network, a)
		}
	}
}

// announce notes that the kubelet does not report an address.
func (e *Endpoint) announce(network string, a netip.Addr) {
	if e.Announced == nil {
		e.Announced = map[string][]netip.Addr{}
	}
	e.Announced[network] = append(e.Announced[network], a)
}

func appendAddr(list []netip.Addr, text string) []netip.Addr {
	a, err := netip.ParseAddr(text)
	if err != nil || a.IsUnspecified() {
		return list
	}
	return append(list, a.Unmap().WithZone(""))
}

// sidecars returns the initial containers that run as long as the pod. The names of the ports of others are not the pod's,
// as for the target port of a Service.
func sidecars(p *corev1.Pod) []corev1.Container {
	return slices.DeleteFunc(slices.Clone(p.Spec.InitContainers), func(c corev1.Container) bool {
		return c.RestartPolicy == nil || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways
	})
}

func portsOf(containers []corev1.Container) (out []NamedPort) {
	for _, c := range containers {
		for _, p := range c.Ports {
			if p.Name == "" || p.ContainerPort < 1 || p.ContainerPort > 65535 {
				continue
			}
			protocol := p.Protocol
			if protocol == "" {
				protocol = corev1.ProtocolTCP
			}
			out = append(out, NamedPort{Name: p.Name, Protocol: string(protocol), Number: uint16(p.ContainerPort)})
		}
	}
	return out
}

// nodeDocument is the annotation in which a node's agent publishes its cluster.Node.
const nodeDocument = "fairlead.io/node"

// FromNode returns a Node's labels and addresses, and what its agent says about policy.
func FromNode(n *corev1.Node) *Node {
	out := &Node{Name: n.Name, Labels: n.Labels, Problem: problemOf(n.Annotations[nodeDocument])}
	for _, a := range n.Status.Addresses {
		out.Addresses = appendAddr(out.Addresses, a.Address) // host names are no addresses
	}
	return out
}

func problemOf(document string) string {
	var doc struct {
		PolicyProblem string `json:"policyProblem"`
	}
	if document == "" || json.Unmarshal([]byte(document), &doc) != nil {
		return "" // the Node has no annotation of an agent, or an invalid one
	}
	const longest = 300 // bytes: it comes from another machine
	return strings.ToValidUTF8(doc.PolicyProblem[:min(len(doc.PolicyProblem), longest)], "")
}
