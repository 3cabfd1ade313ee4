package policytest

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	policyv1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"
)

func (g generator) selector() *metav1.LabelSelector {
	s := &metav1.LabelSelector{}
	if g.percent(40) {
		s.MatchLabels = map[string]string{g.key(): g.value()}
	}
	if g.percent(45) {
		s.MatchExpressions = list(g, 1, 2, g.requirement)
	}
	return s
}

func (g generator) requirement() metav1.LabelSelectorRequirement {
	r := metav1.LabelSelectorRequirement{Key: g.key(), Operator: pick(g, metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn,
		metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist)}
	if r.Operator == metav1.LabelSelectorOpIn || r.Operator == metav1.LabelSelectorOpNotIn {
		r.Values = list(g, 1, 2, g.value)
	}
	return r
}

func (g generator) networkPolicy() *networkingv1.NetworkPolicy {
	out := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: g.namespace()}, Spec: g.networkPolicySpec()}
	out.Name = fresh("np", func(s string) bool {
		return slices.ContainsFunc(g.w.Policies, func(n *networkingv1.NetworkPolicy) bool { return n.Namespace == out.Namespace && n.Name == s })
	})
	return out
}

func (g generator) networkPolicySpec() networkingv1.NetworkPolicySpec {
	const in, out = networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress
	type types = []networkingv1.PolicyType
	return networkingv1.NetworkPolicySpec{
		PodSelector: *g.selector(),
		PolicyTypes: pick(g, nil, types{}, types{in}, types{in}, types{out}, types{out}, types{out}, types{out, in}),
		Ingress: list(g, 0, 3, func() networkingv1.NetworkPolicyIngressRule {
			return networkingv1.NetworkPolicyIngressRule{From: list(g, 0, 3, g.networkPeer), Ports: list(g, 0, 2, g.networkPort)}
		}),
		Egress: list(g, 0, 3, func() networkingv1.NetworkPolicyEgressRule {
			return networkingv1.NetworkPolicyEgressRule{To: list(g, 0, 3, g.networkPeer), Ports: list(g, 0, 2, g.networkPort)}
		}),
	}
}

func (g generator) networkPeer() networkingv1.NetworkPolicyPeer {
	switch g.IntN(6) {
	case 0:
		return networkingv1.NetworkPolicyPeer{PodSelector: g.selector()}
	case 1:
		return networkingv1.NetworkPolicyPeer{NamespaceSelector: g.selector()}
	case 2, 3:
		return networkingv1.NetworkPolicyPeer{PodSelector: g.selector(), NamespaceSelector: g.selector()}
	}
	return networkingv1.NetworkPolicyPeer{IPBlock: g.block()}
}

func (g generator) networkPort() networkingv1.NetworkPolicyPort {
	p := networkingv1.NetworkPolicyPort{}
	if g.percent(70) {
		protocol := corev1.Protocol(g.protocol())
		p.Protocol = &protocol
	}
	switch g.IntN(5) {
	case 0: // all ports
	case 1:
		name := intstr.FromString(g.portName())
		p.Port = &name
	case 2:
		first, last := g.portRange()
		number := intstr.FromInt32(first)
		p.Port, p.EndPort = &number, &last
	default:
		number := intstr.FromInt32(int32(g.port()))
		p.Port = &number
	}
	return p
}

// portRange returns the ends of a range. They may be equal.
func (g generator) portRange() (first, last int32) {
	a, b := int32(g.port()), int32(g.port())
	return min(a, b), max(a, b)
}

// prefix returns a prefix around an address of an endpoint, of a node or from outside.
func (g generator) prefix() netip.Prefix {
	a := pick(g, append(g.used(), outside()...)...)
	bits := pick(g, 0, 8, 16, 24, 32)
	if g.percent(70) {
		bits = 25 + g.IntN(8)
	}
	if a.Is6() {
		bits += 96
		if g.percent(20) {
			bits = pick(g, 0, 16, 64)
		}
	}
	return netip.PrefixFrom(a, bits)
}

// text writes a prefix. One in five has bits behind the prefix, which Kubernetes permits.
func (g generator) text(p netip.Prefix) string {
	if g.percent(20) {
		return p.String()
	}
	return p.Masked().String()
}

// block returns a block. Its exceptions are smaller blocks inside, often around an endpoint's address.
func (g generator) block() *networkingv1.IPBlock {
	p := g.prefix()
	b := &networkingv1.IPBlock{CIDR: g.text(p)}
	if p.IsSingleIP() || g.percent(40) {
		return b
	}
	inside := slices.DeleteFunc(g.used(), func(a netip.Addr) bool { return !p.Contains(a) })
	b.Except = list(g, 0, 3, func() string {
		a := pick(g, append(inside, p.Addr())...)
		return g.text(netip.PrefixFrom(a, p.Bits()+1+g.IntN(a.BitLen()-p.Bits())))
	})
	return b
}

func (g generator) clusterPolicy() *policyv1alpha2.ClusterNetworkPolicy {
	name := fresh("cnp", func(s string) bool {
		return slices.ContainsFunc(g.w.ClusterPolicies, func(c *policyv1alpha2.ClusterNetworkPolicy) bool { return c.Name == s })
	})
	return &policyv1alpha2.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: g.clusterPolicySpec()}
}

func (g generator) clusterPolicySpec() policyv1alpha2.ClusterNetworkPolicySpec {
	s := policyv1alpha2.ClusterNetworkPolicySpec{
		Tier:     pick(g, policyv1alpha2.AdminTier, policyv1alpha2.BaselineTier),
		Priority: pick[int32](g, 0, 1, 2, 1000),
		Ingress: list(g, 0, 3, func() policyv1alpha2.ClusterNetworkPolicyIngressRule {
			return policyv1alpha2.ClusterNetworkPolicyIngressRule{Action: g.action(), From: list(g, 1, 2, g.ingressPeer), Protocols: g.protocols(true)}
		}),
		Egress: list(g, 0, 3, g.egressRule),
	}
	if g.percent(50) {
		s.Subject.Namespaces = g.selector()
	} else {
		s.Subject.Pods = g.namespacedPod()
	}
	return s
}

func (g generator) action() policyv1alpha2.ClusterNetworkPolicyRuleAction {
	return pick(g, policyv1alpha2.ClusterNetworkPolicyRuleActionAccept, policyv1alpha2.ClusterNetworkPolicyRuleActionDeny,
		policyv1alpha2.ClusterNetworkPolicyRuleActionPass)
}

func (g generator) namespacedPod() *policyv1alpha2.NamespacedPod {
	return &policyv1alpha2.NamespacedPod{NamespaceSelector: *g.selector(), PodSelector: *g.selector()}
}

func (g generator) ingressPeer() policyv1alpha2.ClusterNetworkPolicyIngressPeer {
	if g.percent(40) {
		return policyv1alpha2.ClusterNetworkPolicyIngressPeer{Namespaces: g.selector()}
	}
	return policyv1alpha2.ClusterNetworkPolicyIngressPeer{Pods: g.namespacedPod()}
}

// egressRule has named ports only with peers that have ports, and domainNames only in an Accept rule.
func (g generator) egressRule() policyv1alpha2.ClusterNetworkPolicyEgressRule {
	r := policyv1alpha2.ClusterNetworkPolicyEgressRule{Action: g.action()}
	named := true
	r.To = list(g, 1, 3, func() policyv1alpha2.ClusterNetworkPolicyEgressPeer {
		switch kind := g.IntN(10); {
		case kind < 2:
			named = false
			return policyv1alpha2.ClusterNetworkPolicyEgressPeer{Nodes: g.selector()}
		case kind < 4:
			named = false
			return policyv1alpha2.ClusterNetworkPolicyEgressPeer{Networks: list(g, 1, 3, func() policyv1alpha2.CIDR {
				return policyv1alpha2.CIDR(g.text(g.prefix()))
			})}
		case kind == 4 && r.Action == policyv1alpha2.ClusterNetworkPolicyRuleActionAccept:
			named = false
			return policyv1alpha2.ClusterNetworkPolicyEgressPeer{DomainNames: []policyv1alpha2.DomainName{"*.example.com"}}
		}
		in := g.ingressPeer()
		return policyv1alpha2.ClusterNetworkPolicyEgressPeer{Namespaces: in.Namespaces, Pods: in.Pods}
	})
	r.Protocols = g.protocols(named)
	return r
}

func (g generator) protocols(named bool) []policyv1alpha2.ClusterNetworkPolicyProtocol {
	if g.percent(50) {
		return nil
	}
	return list(g, 1, 3, func() policyv1alpha2.ClusterNetworkPolicyProtocol {
		if named && g.percent(25) {
			return policyv1alpha2.ClusterNetworkPolicyProtocol{DestinationNamedPort: g.portName()}
		}
		port := &policyv1alpha2.Port{Number: int32(g.port())}
		if first, last := g.portRange(); first < last && g.percent(50) {
			port = &policyv1alpha2.Port{Range: &policyv1alpha2.PortRange{Start: first, End: last}}
		}
		switch g.protocol() {
		case "TCP":
			return policyv1alpha2.ClusterNetworkPolicyProtocol{TCP: &policyv1alpha2.ClusterNetworkPolicyProtocolTCP{DestinationPort: port}}
		case "UDP":
			return policyv1alpha2.ClusterNetworkPolicyProtocol{UDP: &policyv1alpha2.ClusterNetworkPolicyProtocolUDP{DestinationPort: port}}
		}
		return policyv1alpha2.ClusterNetworkPolicyProtocol{SCTP: &policyv1alpha2.ClusterNetworkPolicyProtocolSCTP{DestinationPort: port}}
	})
}
