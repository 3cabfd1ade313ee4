package policytest

import (
	"math/rand/v2"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	policyv1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/fairlead/fairlead/agent/policy"
)

// Break returns a copy of a world in which a part of one policy is invalid. It returns the world if it has no policies.
func Break(r *rand.Rand, w *policy.World) *policy.World {
	g := generator{r, w}
	broken := *w
	n := len(w.Policies)
	if n+len(w.ClusterPolicies) == 0 {
		return w
	}
	if i := r.IntN(n + len(w.ClusterPolicies)); i < n {
		broken.Policies = slices.Clone(w.Policies)
		broken.Policies[i] = w.Policies[i].DeepCopy()
		g.breakPolicy(&broken.Policies[i].Spec)
	} else {
		broken.ClusterPolicies = slices.Clone(w.ClusterPolicies)
		broken.ClusterPolicies[i-n] = w.ClusterPolicies[i-n].DeepCopy()
		g.breakClusterPolicy(&broken.ClusterPolicies[i-n].Spec)
	}
	return &broken
}

// badSelector returns an invalid selector.
func (g generator) badSelector() metav1.LabelSelector {
	return pick(g,
		metav1.LabelSelector{MatchLabels: map[string]string{"a b": ""}},
		metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: g.key(), Operator: "Like", Values: []string{g.value()}}}},
		metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: g.key(), Operator: metav1.LabelSelectorOpNotIn}}},
		metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: g.key(), Operator: metav1.LabelSelectorOpDoesNotExist, Values: []string{"a"}}}})
}

// breakPolicy makes the podSelector, the types or a rule invalid. A policy without rules gets an invalid one.
func (g generator) breakPolicy(s *networkingv1.NetworkPolicySpec) {
	bad := g.badSelector()
	switch g.IntN(8) {
	case 0:
		s.PodSelector = bad
		return
	case 1:
		s.PolicyTypes = append(s.PolicyTypes, "ingress")
		return
	}
	peers, ports := []networkingv1.NetworkPolicyPeer{}, []networkingv1.NetworkPolicyPort{}
	if g.percent(50) {
		peers = append(peers, pick(g, networkingv1.NetworkPolicyPeer{}, networkingv1.NetworkPolicyPeer{PodSelector: &bad},
			networkingv1.NetworkPolicyPeer{NamespaceSelector: &bad}, networkingv1.NetworkPolicyPeer{PodSelector: g.selector(), IPBlock: g.block()},
			networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: "10.0.0.0/33"}},
			networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: "0.0.0.0/0", Except: []string{"10.0.1.1"}}}))
	} else {
		ports = append(ports, g.badPort())
	}
	in, out := pick(g, s.Ingress, nil), pick(g, s.Egress, nil)
	if len(in) > 0 {
		in[0].From, in[0].Ports = append(in[0].From, peers...), append(in[0].Ports, ports...)
	} else if len(out) > 0 {
		out[0].To, out[0].Ports = append(out[0].To, peers...), append(out[0].Ports, ports...)
	} else {
		s.Ingress = append(s.Ingress, networkingv1.NetworkPolicyIngressRule{From: peers, Ports: ports})
	}
}

func (g generator) badPort() networkingv1.NetworkPolicyPort {
	port := func(port intstr.IntOrString) networkingv1.NetworkPolicyPort {
		return networkingv1.NetworkPolicyPort{Port: &port}
	}
	last, unknown := int32(80), corev1.Protocol("tcp")
	reversed, named := port(intstr.FromInt32(81)), port(intstr.FromString("http"))
	reversed.EndPort, named.EndPort = &last, &last
	return pick(g, port(intstr.FromInt32(65536+80)), port(intstr.FromInt32(0)), port(intstr.FromInt32(-1)), port(intstr.FromString("")),
		reversed, named, networkingv1.NetworkPolicyPort{EndPort: &last}, networkingv1.NetworkPolicyPort{Protocol: &unknown})
}

// breakClusterPolicy makes the subject or a rule invalid. A policy without rules gets an invalid one.
func (g generator) breakClusterPolicy(s *policyv1alpha2.ClusterNetworkPolicySpec) {
	bad := g.badSelector()
	if g.percent(15) {
		s.Subject = pick(g, policyv1alpha2.ClusterNetworkPolicySubject{}, policyv1alpha2.ClusterNetworkPolicySubject{Namespaces: &bad},
			policyv1alpha2.ClusterNetworkPolicySubject{Namespaces: g.selector(), Pods: g.namespacedPod()})
		return
	}
	if len(s.Ingress) == 0 {
		s.Ingress = append(s.Ingress, policyv1alpha2.ClusterNetworkPolicyIngressRule{Action: g.action(), From: list(g, 1, 2, g.ingressPeer)})
	}
	rule := &s.Ingress[g.IntN(len(s.Ingress))]
	switch g.IntN(10) {
	case 0:
		rule.From = nil
	case 1:
		rule.Action = "Allow"
	case 2, 3, 4, 5:
		rule.From = append(rule.From, pick(g, policyv1alpha2.ClusterNetworkPolicyIngressPeer{},
			policyv1alpha2.ClusterNetworkPolicyIngressPeer{Namespaces: &bad},
			policyv1alpha2.ClusterNetworkPolicyIngressPeer{Pods: &policyv1alpha2.NamespacedPod{PodSelector: bad}},
			policyv1alpha2.ClusterNetworkPolicyIngressPeer{Namespaces: g.selector(), Pods: g.namespacedPod()}))
	default:
		rule.Protocols = append(rule.Protocols, g.badProtocol())
	}
	if len(s.Egress) > 0 && g.percent(50) {
		s.Egress[0].To = append(s.Egress[0].To, pick(g, policyv1alpha2.ClusterNetworkPolicyEgressPeer{},
			policyv1alpha2.ClusterNetworkPolicyEgressPeer{Nodes: &bad},
			policyv1alpha2.ClusterNetworkPolicyEgressPeer{Networks: []policyv1alpha2.CIDR{"10.0.0.0/33"}}))
	}
}

func (g generator) badProtocol() policyv1alpha2.ClusterNetworkPolicyProtocol {
	tcp := func(p *policyv1alpha2.Port) policyv1alpha2.ClusterNetworkPolicyProtocol {
		return policyv1alpha2.ClusterNetworkPolicyProtocol{TCP: &policyv1alpha2.ClusterNetworkPolicyProtocolTCP{DestinationPort: p}}
	}
	two := tcp(&policyv1alpha2.Port{Number: 80})
	two.DestinationNamedPort = "http"
	return pick(g, policyv1alpha2.ClusterNetworkPolicyProtocol{}, tcp(nil), tcp(&policyv1alpha2.Port{}), two,
		tcp(&policyv1alpha2.Port{Number: 65536 + 80}), tcp(&policyv1alpha2.Port{Range: &policyv1alpha2.PortRange{Start: 81, End: 80}}),
		tcp(&policyv1alpha2.Port{Range: &policyv1alpha2.PortRange{Start: 1, End: 65536}}))
}
