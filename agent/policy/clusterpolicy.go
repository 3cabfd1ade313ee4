package policy

import (
	"errors"
	"fmt"

	v1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"
)

// ClusterPolicyID names a ClusterNetworkPolicy.
func ClusterPolicyID(name string) string { return clusterPolicyPrefix + name }

const clusterPolicyPrefix = "ClusterNetworkPolicy "

// fromClusterPolicy reads a ClusterNetworkPolicy, policy.networking.k8s.io/v1alpha2. If a part of a rule is invalid or
// unknown, the rule fails closed, as the API demands for unknown peers: Accept matches nothing, Deny and Pass deny
// everything. A rule with an unknown action denies. With an invalid subject, the policy selects all pods, and all its
// rules are invalid. With an unknown tier it has no effect: its place in the order is unknown.
func fromClusterPolicy(cnp *v1alpha2.ClusterNetworkPolicy) *rules {
	p := &rules{id: ClusterPolicyID(cnp.Name), priority: cnp.Spec.Priority}
	switch cnp.Spec.Tier {
	case v1alpha2.AdminTier:
		p.tier = adminTier
	case v1alpha2.BaselineTier:
		p.tier = baselineTier
	default:
		p.noPods = true
		p.problem("tier", fmt.Errorf("%q: want Admin or Baseline", cnp.Spec.Tier))
	}
	errSubject := p.setSubject(cnp.Spec.Subject)
	if errSubject != nil {
		p.problem("subject", errSubject)
	}
	for i, r := range cnp.Spec.Ingress {
		var peers []v1alpha2.ClusterNetworkPolicyEgressPeer
		for _, f := range r.From {
			peers = append(peers, v1alpha2.ClusterNetworkPolicyEgressPeer{Namespaces: f.Namespaces, Pods: f.Pods})
		}
		p.clusterRule(ingress, i, r.Name, r.Action, peers, r.Protocols, errSubject)
	}
	for i, r := range cnp.Spec.Egress {
		p.clusterRule(egress, i, r.Name, r.Action, r.To, r.Protocols, errSubject)
	}
	return p
}

func (p *rules) setSubject(s v1alpha2.ClusterNetworkPolicySubject) error {
	var r rule
	err := r.addClusterPeer(v1alpha2.ClusterNetworkPolicyEgressPeer{Namespaces: s.Namespaces, Pods: s.Pods})
	if err == nil {
		p.subject = r.pods[0]
	}
	return err
}

func (p *rules) clusterRule(d direction, number int, name string, a v1alpha2.ClusterNetworkPolicyRuleAction, peers []v1alpha2.ClusterNetworkPolicyEgressPeer, protocols []v1alpha2.ClusterNetworkPolicyProtocol, errSubject error) {
	r := rule{name: fmt.Sprintf("%s[%d]", d, number), action: action(a), anyPort: len(protocols) == 0}
	if name != "" {
		r.name += " " + name
	}
	errs := []error{errSubject}
	if len(peers) == 0 {
		errs = append(errs, errors.New("it has no peers"))
	}
	for i, peer := range peers {
		err := r.addClusterPeer(peer)
		if errors.Is(err, errDomainNames) && r.action == accept {
			p.problem(r.name, err) // the rule's other peers match
		} else if err != nil {
			errs = append(errs, fmt.Errorf("%s[%d]: %w", d.peers(), i, err))
		}
	}
	for i, protocol := range protocols {
		if err := r.addProtocol(protocol); err != nil {
			errs = append(errs, fmt.Errorf("protocols[%d]: %w", i, err))
		}
	}
	if len(r.named) > 0 && len(r.nodes)+len(r.blocks) > 0 {
		errs = append(errs, errors.New("nodes and networks have no named ports"))
	}
	if r.action != accept && r.action != deny && r.action != pass {
		p.problem(r.name, fmt.Errorf("action %q: want Accept, Deny or Pass; the rule denies", a))
		r.action = deny
	}
	p.applies[d] = true
	if err := errors.Join(errs...); err != nil {
		if errSubject == nil {
			p.problem(r.name, err)
		}
		if r.action == accept {
			return
		}
		r = rule{name: r.name, action: deny, anyPeer: true, anyPort: true}
	}
	p.rules[d] = append(p.rules[d], r)
}

var errDomainNames = errors.New("domainNames are not supported and match nothing") // a constant; nothing assigns it

// addClusterPeer adds a peer, which has exactly one field.
func (r *rule) addClusterPeer(peer v1alpha2.ClusterNetworkPolicyEgressPeer) (err error) {
	fields := 0
	var s podSelector
	if peer.Namespaces != nil {
		fields++
		s.namespaces, err = parseSelector(peer.Namespaces)
		r.pods = append(r.pods, s)
	}
	if peer.Pods != nil {
		fields++
		var err2 error
		s.namespaces, err = parseSelector(&peer.Pods.NamespaceSelector)
		s.pods, err2 = parseSelector(&peer.Pods.PodSelector)
		err = errors.Join(err, err2)
		r.pods = append(r.pods, s)
	}
	if peer.Nodes != nil {
		fields++
		var nodes labelSelector
		nodes, err = parseSelector(peer.Nodes)
		r.nodes = append(r.nodes, nodes)
	}
	if len(peer.Networks) > 0 {
		fields++
		for _, text := range peer.Networks {
			p, err2 := parseCIDR(string(text))
			if err2 != nil {
				err = err2
				continue
			}
			r.blocks = append(r.blocks, rangeOf(p))
		}
	}
	if len(peer.DomainNames) > 0 {
		fields++
		err = errDomainNames
	}
	if fields != 1 {
		const known = "namespaces, pods and, for egress, nodes, networks and domainNames"
		return fmt.Errorf("it has %d of the fields %s: want exactly one", fields, known)
	}
	return err
}

// addProtocol adds a protocol, which has exactly one field.
func (r *rule) addProtocol(p v1alpha2.ClusterNetworkPolicyProtocol) (err error) {
	fields := 0
	add := func(name string, port *v1alpha2.Port) {
		fields++
		switch {
		case port == nil:
			err = fmt.Errorf("%s: destinationPort is missing", name)
		case port.Range != nil && port.Number != 0:
			err = fmt.Errorf("%s.destinationPort has a number and a range: want one of the two", name)
		case port.Range != nil && port.Range.Start == port.Range.End:
			err = fmt.Errorf("%s.destinationPort: the range starts and ends at %d: want number: %[2]d", name, port.Range.Start)
		case port.Range != nil:
			err = r.addRange(name, port.Range.Start, port.Range.End)
		default:
			err = r.addRange(name, port.Number, port.Number)
		}
	}
	if p.TCP != nil {
		add("tcp", p.TCP.DestinationPort)
	}
	if p.UDP != nil {
		add("udp", p.UDP.DestinationPort)
	}
	if p.SCTP != nil {
		add("sctp", p.SCTP.DestinationPort)
	}
	if p.DestinationNamedPort != "" {
		fields++
		r.named = append(r.named, namedPort{name: p.DestinationNamedPort})
	}
	if fields != 1 {
		return fmt.Errorf("it has %d of the fields tcp, udp, sctp and destinationNamedPort: want exactly one", fields)
	}
	return err
}
