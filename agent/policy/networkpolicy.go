package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	netutils "k8s.io/utils/net"
)

// NetworkPolicyID names a NetworkPolicy.
func NetworkPolicyID(namespace, name string) string {
	return networkPolicyPrefix + namespace + "/" + name
}

const networkPolicyPrefix = "NetworkPolicy "

// fromNetworkPolicy reads a NetworkPolicy, networking.k8s.io/v1. The API server rejects invalid ones; those from a file or
// of a newer API may get here. They never open anything: an invalid rule matches nothing, a policy with an invalid
// podSelector isolates its namespace, and one with an unknown policy type isolates its pods in both directions. A policy
// without policyTypes is about ingress, and about egress if it has rules for it.
func fromNetworkPolicy(np *networkingv1.NetworkPolicy) *rules {
	p := &rules{id: NetworkPolicyID(np.Namespace, np.Name), tier: networkTier}
	selector, err := parseSelector(&np.Spec.PodSelector)
	p.subject = podSelector{namespace: np.Namespace, pods: selector}
	if err != nil {
		p.problem("podSelector", err)
	}
	types := np.Spec.PolicyTypes
	p.applies[ingress] = len(types) == 0 || slices.Contains(types, networkingv1.PolicyTypeIngress)
	p.applies[egress] = len(types) == 0 && len(np.Spec.Egress) > 0 || slices.Contains(types, networkingv1.PolicyTypeEgress)
	for _, t := range types {
		if t != networkingv1.PolicyTypeIngress && t != networkingv1.PolicyTypeEgress {
			p.applies = [2]bool{true, true}
			p.problem("policyTypes", fmt.Errorf("%q: want Ingress or Egress", t))
		}
	}
	if len(p.problems) > 0 {
		return p
	}
	for i, r := range np.Spec.Ingress {
		p.networkRule(ingress, i, np.Namespace, r.From, r.Ports)
	}
	for i, r := range np.Spec.Egress {
		p.networkRule(egress, i, np.Namespace, r.To, r.Ports)
	}
	return p
}

func (p *rules) problem(where string, err error) {
	p.problems = append(p.problems, fmt.Errorf("%s: %w", where, err))
}

func (p *rules) networkRule(d direction, number int, namespace string, peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort) {
	r := rule{name: fmt.Sprintf("%s[%d]", d, number), action: accept, anyPeer: len(peers) == 0, anyPort: len(ports) == 0}
	var errs []error
	for i, peer := range peers {
		if err := r.addPeer(namespace, peer); err != nil {
			errs = append(errs, fmt.Errorf("%s[%d]: %w", d.peers(), i, err))
		}
	}
	for i, port := range ports {
		if err := r.addPort(port); err != nil {
			errs = append(errs, fmt.Errorf("ports[%d]: %w", i, err))
		}
	}
	switch {
	case len(errs) > 0:
		p.problem(r.name, errors.Join(errs...))
	case p.applies[d]:
		p.rules[d] = append(p.rules[d], r)
	}
}

func (r *rule) addPeer(namespace string, peer networkingv1.NetworkPolicyPeer) error {
	switch {
	case peer.IPBlock != nil && (peer.PodSelector != nil || peer.NamespaceSelector != nil):
		return fmt.Errorf("ipBlock cannot be combined with a selector")
	case peer.IPBlock != nil:
		b, err := parseBlock(peer.IPBlock)
		if err == nil {
			r.blocks = append(r.blocks, b.ranges()...)
		}
		return err
	case peer.PodSelector == nil && peer.NamespaceSelector == nil:
		return fmt.Errorf("it has none of podSelector, namespaceSelector and ipBlock")
	}
	s := podSelector{namespace: namespace}
	var err error
	if peer.NamespaceSelector != nil {
		s.namespace = ""
		if s.namespaces, err = parseSelector(peer.NamespaceSelector); err != nil {
			return fmt.Errorf("namespaceSelector: %w", err)
		}
	}
	if peer.PodSelector != nil {
		if s.pods, err = parseSelector(peer.PodSelector); err != nil {
			return fmt.Errorf("podSelector: %w", err)
		}
	}
	r.pods = append(r.pods, s)
	return nil
}

func parseBlock(b *networkingv1.IPBlock) (out block, err error) {
	if out.cidr, err = parseCIDR(b.CIDR); err != nil {
		return block{}, fmt.Errorf("ipBlock: %w", err)
	}
	for _, text := range b.Except {
		p, err := parseCIDR(text)
		if err != nil {
			return block{}, fmt.Errorf("ipBlock, except: %w", err)
		}
		if p.Bits() <= out.cidr.Bits() || !out.cidr.Contains(p.Addr()) {
			return block{}, fmt.Errorf("ipBlock, except: %s is not a part of %s", text, b.CIDR)
		}
		out.except = append(out.except, p)
	}
	return out, nil
}

// parseCIDR reads an address with a prefix length. Addresses of IPv4 within IPv6 are IPv4, and leading zeros mean nothing, as
// Kubernetes reads them.
func parseCIDR(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if _, block, err2 := netutils.ParseCIDRSloppy(text); err != nil && err2 == nil {
		a, _ := netip.AddrFromSlice(block.IP)
		bits, _ := block.Mask.Size()
		p, err = netip.PrefixFrom(a, bits), nil
	}
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q is not an address range such as 10.0.0.0/8", text)
	}
	if p.Addr().Is4In6() {
		if p.Bits() < 96 {
			return netip.Prefix{}, fmt.Errorf("%q: want a prefix length of at least 96 for an IPv4 address within IPv6", text)
		}
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Masked(), nil
}

func (r *rule) addPort(port networkingv1.NetworkPolicyPort) error {
	protocol := corev1.ProtocolTCP
	if port.Protocol != nil {
		protocol = *port.Protocol
	}
	name, err := protocolName(string(protocol))
	switch {
	case err != nil:
		return err
	case port.Port == nil && port.EndPort != nil:
		return errors.New("endPort needs a port")
	case port.Port == nil:
		r.ports = append(r.ports, portRange{name, 0, 65535})
		return nil
	case port.Port.Type == intstr.String && port.EndPort != nil:
		return fmt.Errorf("endPort needs a port number, and port is %q", port.Port.StrVal)
	case port.Port.Type == intstr.String:
		r.named = append(r.named, namedPort{name, port.Port.StrVal})
		return portNameProblem(port.Port.StrVal)
	}
	last := port.Port.IntVal
	if port.EndPort != nil {
		last = *port.EndPort
	}
	return r.addRange(name, port.Port.IntVal, last)
}

// portNameProblem returns why Kubernetes rejects the name of a port, or nil. No pod has a port of such a name.
func portNameProblem(name string) error {
	if name == "" {
		return errors.New("the name of the port is empty")
	}
	if _, err := strconv.Atoi(name); err == nil {
		return fmt.Errorf("port %q is a text: write the number without quotes", name)
	}
	if errs := validation.IsValidPortName(name); len(errs) > 0 {
		return fmt.Errorf("port name %q: %s", name, strings.Join(errs, "; "))
	}
	return nil
}

func (r *rule) addRange(protocol string, first, last int32) error {
	if first == last && (first < 1 || last > 65535) {
		return fmt.Errorf("port %d: want a number from 1 to 65535", first)
	}
	if first < 1 || last > 65535 || last < first {
		return fmt.Errorf("ports %d to %d: want two numbers from 1 to 65535 in order", first, last)
	}
	r.ports = append(r.ports, portRange{protocol, uint16(first), uint16(last)})
	return nil
}

func protocolName(s string) (string, error) {
	switch s {
	case "TCP", "UDP", "SCTP":
		return strings.ToLower(s), nil
	}
	return "", fmt.Errorf("protocol %q: want TCP, UDP or SCTP", s)
}
