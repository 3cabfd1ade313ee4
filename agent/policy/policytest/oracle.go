// Package policytest evaluates network policy as the documentation of the APIs describes it. It also generates random
// worlds for fuzzing.
//
// The evaluator shares no code with package policy. It is simple and slow: it reads all objects for each packet.
//
// Both APIs leave open what an invalid object means, except for the peers of a ClusterNetworkPolicy. Here an invalid
// object never opens anything:
//
//   - A rule with an invalid peer or port is invalid as a whole. In a NetworkPolicy, an invalid rule matches nothing.
//     In a ClusterNetworkPolicy, it matches nothing if its action is Accept, and denies everything otherwise. The API
//     demands the same for peers without a field. A valid rule with an unknown action denies what it matches.
//   - A NetworkPolicy with an invalid podSelector isolates all endpoints of its namespace, and its rules match nothing.
//     One with an unknown policy type isolates its endpoints in both directions, and its rules match nothing.
//   - A ClusterNetworkPolicy with an invalid subject selects every endpoint, and all its rules are invalid.
//   - A ClusterNetworkPolicy with an unknown tier has no effect, because its place in the order is unknown.
//
// No domain name is ever resolved. A peer with domainNames matches nothing in an Accept rule. A Deny or Pass rule with
// domainNames is invalid, because the API supports them in Accept rules only.
package policytest

import (
	"cmp"
	"net/netip"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	policyv1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/fairlead/fairlead/agent/policy"
)

// Stage is the part of the evaluation that decides about one direction of a packet.
type Stage string

// The stages, in their order. Kubernetes' page "Network Policies" demands Itself, and OwnNode for both directions. The
// comments of the APIs demand OwnNode for ingress only. Those of ClusterNetworkPolicy do not mention it, and its conformance
// tests demand that egress rules apply to an endpoint's own node.
const (
	NoEndpoint    Stage = "no endpoint"   // the address of this side belongs to no endpoint
	Itself        Stage = "itself"        // an endpoint may always talk to itself
	OwnNode       Stage = "own node"      // an endpoint's node reaches it, and NetworkPolicies allow the other direction
	Admin         Stage = "Admin"         // a ClusterNetworkPolicy of tier Admin
	NetworkPolicy Stage = "NetworkPolicy" // the NetworkPolicies that select the endpoint
	Baseline      Stage = "Baseline"      // a ClusterNetworkPolicy of tier Baseline
	Default       Stage = "default"       // no policy decided
)

// Verdict is the decision about one direction.
type Verdict struct {
	Allowed bool
	Stage   Stage
	Policy  string // NAME or NAMESPACE/NAME; empty if no policy decided
	Rule    int    // index of the deciding rule; -1 if no rule matched
}

// Decision is the decision about a packet. Egress is checked at the source, ingress at the destination.
type Decision struct{ Egress, Ingress Verdict }

// Allowed reports whether both directions are allowed.
func (d Decision) Allowed() bool { return d.Egress.Allowed && d.Ingress.Allowed }

// Allowed reports whether policy allows a packet.
func Allowed(w *policy.World, p policy.Packet) bool { return Decide(w, p).Allowed() }

// Decide returns the decision about a packet. If several endpoints have an address, the last one in the list owns it.
func Decide(w *policy.World, p policy.Packet) Decision {
	src, dst := endpoint(w, p.Src), endpoint(w, p.Dst)
	return Decision{
		Egress:  flow{w: w, p: p, dst: dst, egress: true, subject: src, peer: dst, address: p.Dst}.verdict(),
		Ingress: flow{w: w, p: p, dst: dst, egress: false, subject: dst, peer: src, address: p.Src}.verdict(),
	}
}

func endpoint(w *policy.World, a netip.Addr) *policy.Endpoint {
	for _, e := range slices.Backward(w.Endpoints) {
		if slices.Contains(e.Addresses, a) {
			return e
		}
	}
	return nil
}

// flow is one direction of a packet.
type flow struct {
	w             *policy.World
	p             policy.Packet
	dst           *policy.Endpoint // nil if the destination is no endpoint
	egress        bool
	subject, peer *policy.Endpoint // nil if not an endpoint
	address       netip.Addr       // the peer's
}

func (f flow) verdict() Verdict {
	switch {
	case f.subject == nil:
		return Verdict{Allowed: true, Stage: NoEndpoint, Rule: -1}
	case f.subject == f.peer:
		return Verdict{Allowed: true, Stage: Itself, Rule: -1}
	}
	own := slices.ContainsFunc(f.w.Nodes, func(n *policy.Node) bool {
		return n.Name == f.subject.Node && slices.Contains(n.Addresses, f.address)
	})
	always := Verdict{Allowed: true, Stage: OwnNode, Rule: -1}
	if own && !f.egress {
		return always
	}
	if v, final := f.tier(Admin); final {
		return v
	}
	if v, final := f.networkPolicies(); final {
		if own {
			return always
		}
		return v
	}
	if v, final := f.tier(Baseline); final {
		return v
	}
	if own {
		return always
	}
	return Verdict{Allowed: true, Stage: Default, Rule: -1}
}

// networkPolicies decides finally if at least one NetworkPolicy selects the endpoint for the direction.
func (f flow) networkPolicies() (v Verdict, final bool) {
	for _, n := range f.w.Policies {
		typed, selected := f.typed(&n.Spec), selects(&n.Spec.PodSelector, f.subject.Labels)
		if n.Namespace != f.subject.Namespace || typed == no || selected == no {
			continue
		}
		name := n.Namespace + "/" + n.Name
		if !final {
			v, final = Verdict{Stage: NetworkPolicy, Policy: name, Rule: -1}, true
		}
		if both(typed, selected) == invalid {
			continue
		}
		rules := n.Spec.Egress
		if !f.egress {
			rules = egressRules(n.Spec.Ingress)
		}
		for i, r := range rules {
			if f.networkRule(n.Namespace, &r) == yes {
				return Verdict{Allowed: true, Stage: NetworkPolicy, Policy: name, Rule: i}, true
			}
		}
	}
	return v, final
}

// typed answers whether a NetworkPolicy affects the direction.
func (f flow) typed(s *networkingv1.NetworkPolicySpec) answer {
	if len(s.PolicyTypes) == 0 {
		return is(!f.egress || len(s.Egress) > 0)
	}
	return anyOf(s.PolicyTypes, func(t networkingv1.PolicyType) answer {
		switch t {
		case networkingv1.PolicyTypeIngress:
			return is(!f.egress)
		case networkingv1.PolicyTypeEgress:
			return is(f.egress)
		}
		return invalid
	})
}

// egressRules converts ingress rules, which have the same fields.
func egressRules(ingress []networkingv1.NetworkPolicyIngressRule) (out []networkingv1.NetworkPolicyEgressRule) {
	for _, r := range ingress {
		out = append(out, networkingv1.NetworkPolicyEgressRule{Ports: r.Ports, To: r.From})
	}
	return out
}

func (f flow) networkRule(namespace string, r *networkingv1.NetworkPolicyEgressRule) answer {
	peer := func(p networkingv1.NetworkPolicyPeer) answer { return f.networkPeer(namespace, p) }
	return both(anyOrAbsent(r.To, peer), anyOrAbsent(r.Ports, f.networkPort))
}

func (f flow) networkPeer(namespace string, p networkingv1.NetworkPolicyPeer) answer {
	switch {
	case p.IPBlock != nil && (p.PodSelector != nil || p.NamespaceSelector != nil):
		return invalid
	case p.IPBlock != nil:
		return both(f.within(p.IPBlock.CIDR), not(anyOf(p.IPBlock.Except, f.within)))
	case p.NamespaceSelector == nil && p.PodSelector == nil:
		return invalid
	case p.NamespaceSelector == nil:
		return both(is(f.peer != nil && f.peer.Namespace == namespace), f.pods(f.peer, everything(), p.PodSelector))
	}
	return f.pods(f.peer, p.NamespaceSelector, cmp.Or(p.PodSelector, everything()))
}

func (f flow) networkPort(p networkingv1.NetworkPolicyPort) answer {
	protocol := "TCP"
	if p.Protocol != nil {
		protocol = string(*p.Protocol)
	}
	switch {
	case protocol != "TCP" && protocol != "UDP" && protocol != "SCTP":
		return invalid
	case p.Port == nil && p.EndPort == nil:
		return is(f.p.Protocol == protocol)
	case p.Port == nil:
		return invalid
	case p.Port.StrVal != "" && p.EndPort == nil:
		return both(f.named(p.Port.StrVal), is(f.p.Protocol == protocol))
	case p.Port.StrVal != "":
		return invalid
	case p.EndPort != nil:
		return f.number(protocol, p.Port.IntVal, *p.EndPort)
	}
	return f.number(protocol, p.Port.IntVal, p.Port.IntVal)
}

// tier decides finally if a rule with the action Accept or Deny matches before one with the action Pass does.
func (f flow) tier(stage Stage) (v Verdict, final bool) {
	byPriority := func(a, b *policyv1alpha2.ClusterNetworkPolicy) int {
		return cmp.Or(cmp.Compare(a.Spec.Priority, b.Spec.Priority), cmp.Compare(a.Name, b.Name))
	}
	for _, c := range slices.SortedStableFunc(slices.Values(f.w.ClusterPolicies), byPriority) {
		selected := f.subjected(&c.Spec.Subject)
		if string(c.Spec.Tier) != string(stage) || selected == no {
			continue
		}
		rules := c.Spec.Egress
		if !f.egress {
			rules = clusterEgressRules(c.Spec.Ingress)
		}
		for i, r := range rules {
			accept := r.Action == policyv1alpha2.ClusterNetworkPolicyRuleActionAccept
			if !accept && selected == yes && f.unknown(&r) {
				return Verdict{Stage: stage, Policy: c.Name, Rule: i}, true
			}
			switch matches := both(selected, f.clusterRule(&r)); {
			case matches == no || matches == invalid && accept:
				continue
			case matches == yes && r.Action == policyv1alpha2.ClusterNetworkPolicyRuleActionPass:
				return Verdict{}, false
			}
			return Verdict{Allowed: accept, Stage: stage, Policy: c.Name, Rule: i}, true
		}
	}
	return Verdict{}, false
}

// unknown reports whether the other end may be a pod that is not known yet, and a valid rule about pods could match it.
func (f flow) unknown(r *policyv1alpha2.ClusterNetworkPolicyEgressRule) bool {
	in := func(p netip.Prefix) bool { return p.Contains(f.address) }
	of := func(n *policy.Node) bool { return slices.Contains(n.Addresses, f.address) }
	about := func(p policyv1alpha2.ClusterNetworkPolicyEgressPeer) bool {
		return p.Namespaces != nil || p.Pods != nil
	}
	if f.peer != nil || !slices.ContainsFunc(f.w.PodNetworks, in) || slices.ContainsFunc(f.w.Nodes, of) || !slices.ContainsFunc(r.To, about) {
		return false
	}
	named := func(p policyv1alpha2.ClusterNetworkPolicyProtocol) bool { return p.DestinationNamedPort != "" }
	return f.clusterRule(r) != invalid && (slices.ContainsFunc(r.Protocols, named) || anyOrAbsent(r.Protocols, f.clusterProtocol) == yes)
}

// clusterEgressRules converts ingress rules, whose peers have fewer fields.
func clusterEgressRules(ingress []policyv1alpha2.ClusterNetworkPolicyIngressRule) (out []policyv1alpha2.ClusterNetworkPolicyEgressRule) {
	for _, r := range ingress {
		rule := policyv1alpha2.ClusterNetworkPolicyEgressRule{Action: r.Action, Protocols: r.Protocols}
		for _, p := range r.From {
			rule.To = append(rule.To, policyv1alpha2.ClusterNetworkPolicyEgressPeer{Namespaces: p.Namespaces, Pods: p.Pods})
		}
		out = append(out, rule)
	}
	return out
}

func (f flow) subjected(s *policyv1alpha2.ClusterNetworkPolicySubject) answer {
	switch {
	case (s.Namespaces == nil) == (s.Pods == nil):
		return invalid
	case s.Pods != nil:
		return f.pods(f.subject, &s.Pods.NamespaceSelector, &s.Pods.PodSelector)
	}
	return f.pods(f.subject, s.Namespaces, everything())
}

func (f flow) clusterRule(r *policyv1alpha2.ClusterNetworkPolicyEgressRule) answer {
	if len(r.To) == 0 {
		return invalid
	}
	named := slices.ContainsFunc(r.Protocols, func(p policyv1alpha2.ClusterNetworkPolicyProtocol) bool {
		return p.DestinationNamedPort != ""
	})
	for _, p := range r.To {
		noPorts := p.Nodes != nil || p.Networks != nil || p.DomainNames != nil
		if noPorts && named || p.DomainNames != nil && r.Action != policyv1alpha2.ClusterNetworkPolicyRuleActionAccept {
			return invalid
		}
	}
	return both(anyOf(r.To, f.clusterPeer), anyOrAbsent(r.Protocols, f.clusterProtocol))
}

func (f flow) clusterPeer(p policyv1alpha2.ClusterNetworkPolicyEgressPeer) answer {
	switch {
	case count(p.Namespaces != nil, p.Pods != nil, p.Nodes != nil, len(p.Networks) > 0, len(p.DomainNames) > 0) != 1:
		return invalid
	case p.Namespaces != nil:
		return f.pods(f.peer, p.Namespaces, everything())
	case p.Pods != nil:
		return f.pods(f.peer, &p.Pods.NamespaceSelector, &p.Pods.PodSelector)
	case p.Nodes != nil:
		unknown := &policy.Node{} // no node may exist, and the selector must be validated
		return anyOf(append(slices.Clone(f.w.Nodes), unknown), func(n *policy.Node) answer {
			return both(selects(p.Nodes, n.Labels), is(slices.Contains(n.Addresses, f.address)))
		})
	case p.Networks != nil:
		return anyOf(p.Networks, func(n policyv1alpha2.CIDR) answer { return f.within(string(n)) })
	}
	return no // domainNames
}

func (f flow) clusterProtocol(p policyv1alpha2.ClusterNetworkPolicyProtocol) answer {
	switch {
	case count(p.TCP != nil, p.UDP != nil, p.SCTP != nil, p.DestinationNamedPort != "") != 1:
		return invalid
	case p.TCP != nil:
		return f.clusterPort("TCP", p.TCP.DestinationPort)
	case p.UDP != nil:
		return f.clusterPort("UDP", p.UDP.DestinationPort)
	case p.SCTP != nil:
		return f.clusterPort("SCTP", p.SCTP.DestinationPort)
	}
	return f.named(p.DestinationNamedPort)
}

// clusterPort treats an absent port as invalid: the API requires at least one field of each protocol.
func (f flow) clusterPort(protocol string, p *policyv1alpha2.Port) answer {
	switch {
	case p == nil || (p.Number == 0) == (p.Range == nil):
		return invalid
	case p.Range == nil:
		return f.number(protocol, p.Number, p.Number)
	case p.Range.Start == p.Range.End:
		return invalid
	}
	return f.number(protocol, p.Range.Start, p.Range.End)
}
