package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/intstr"
	strict "sigs.k8s.io/yaml"
)

// short is a policy in the short form, for people without Kubernetes. It stands for a NetworkPolicy.
type short struct {
	Policy    string       `json:"policy"`    // its name
	Namespace string       `json:"namespace"` // default: "default"
	For       string       `json:"for"`       // a label selector, or "*"
	In        *[]shortRule `json:"in"`        // nil: everybody may connect
	Out       *[]shortRule `json:"out"`
}

type shortRule struct {
	From  words `json:"from"` // of In
	To    words `json:"to"`   // of Out
	Ports words `json:"ports"`
}

// words are a text or a number, or a list of them.
type words []string

// UnmarshalJSON implements json.Unmarshaler.
func (w *words) UnmarshalJSON(raw []byte) error {
	var list []any
	if err := json.Unmarshal(raw, &list); err != nil {
		var one any
		if err := json.Unmarshal(raw, &one); err != nil {
			return err
		}
		list = []any{one}
	}
	*w = words{}
	for _, v := range list {
		switch v := v.(type) {
		case string:
			*w = append(*w, strings.TrimSpace(v))
		case float64:
			*w = append(*w, strconv.FormatFloat(v, 'f', -1, 64))
		default:
			return fmt.Errorf("%s: want a text or a number, or a list of them", raw)
		}
	}
	return nil
}

// isShort reports whether a document is a policy in the short form.
func isShort(text []byte) bool {
	var head map[string]any
	if strict.Unmarshal(text, &head) != nil {
		return false
	}
	_, named := head["policy"]
	_, kind := head["kind"]
	return named && !kind
}

// parseShort returns the NetworkPolicy for which a policy in the short form stands.
func parseShort(text []byte) (*networkingv1.NetworkPolicy, error) {
	var s short
	if err := decode(text, &s, true); err != nil {
		return nil, err
	}
	p := &networkingv1.NetworkPolicy{}
	p.Name, p.Namespace = s.Policy, s.Namespace
	if p.Namespace == "" {
		p.Namespace = corev1.NamespaceDefault
	}
	err := errors.Join(noNull(text), s.fill(&p.Spec))
	if s.Policy == "" {
		err = errors.Join(errors.New("policy: want a name"), err)
	}
	if err != nil {
		return nil, fmt.Errorf("policy %s: %w", s.Policy, err)
	}
	return p, nil
}

// noNull returns an error if a list of rules, or a rule, has no value. A reader may take that for "nobody" or for
// "everybody".
func noNull(text []byte) error {
	var keys map[string]any
	if err := strict.Unmarshal(text, &keys); err != nil {
		return err
	}
	for _, key := range []string{"in", "out"} {
		v, exists := keys[key]
		list, _ := v.([]any)
		switch {
		case exists && v == nil:
			return fmt.Errorf("%s: the value is missing: write [] for nobody", key)
		case slices.Contains(list, nil):
			return fmt.Errorf("%s: a rule is missing: write {} for everybody", key)
		}
	}
	return nil
}

func (s *short) fill(to *networkingv1.NetworkPolicySpec) error {
	var errs []error
	selector, err := selectorOf(s.For)
	if err != nil {
		errs = append(errs, fmt.Errorf("for: %w", err))
	} else {
		to.PodSelector = *selector
	}
	if s.In == nil && s.Out == nil {
		errs = append(errs, errors.New(`want "in" or "out": a policy without them allows and forbids nothing`))
	}
	if s.In != nil {
		to.PolicyTypes = append(to.PolicyTypes, networkingv1.PolicyTypeIngress)
		for i, r := range *s.In {
			peers, ports, err := r.parse("from", r.From, "to", r.To)
			if err != nil {
				errs = append(errs, fmt.Errorf("in[%d]: %w", i, err))
			}
			to.Ingress = append(to.Ingress, networkingv1.NetworkPolicyIngressRule{From: peers, Ports: ports})
		}
	}
	if s.Out != nil {
		to.PolicyTypes = append(to.PolicyTypes, networkingv1.PolicyTypeEgress)
		for i, r := range *s.Out {
			peers, ports, err := r.parse("to", r.To, "from", r.From)
			if err != nil {
				errs = append(errs, fmt.Errorf("out[%d]: %w", i, err))
			}
			to.Egress = append(to.Egress, networkingv1.NetworkPolicyEgressRule{To: peers, Ports: ports})
		}
	}
	return errors.Join(errs...)
}

// parse returns the peers and ports of a rule. Without peers it is about everybody, and so it is with "*".
func (r *shortRule) parse(key string, peers words, other string, none words) (out []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort, err error) {
	if none != nil {
		return nil, nil, fmt.Errorf("%s: want %q here", other, key)
	}
	if peers != nil && len(peers) == 0 {
		return nil, nil, fmt.Errorf("%s: the list is empty: leave the key out for everybody", key)
	}
	all := false
	for _, w := range peers {
		if w == "*" {
			all = true
			continue
		}
		p, err := peerOf(w)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", key, err)
		}
		out = append(out, p)
	}
	if all {
		out = nil
	}
	if r.Ports != nil && len(r.Ports) == 0 {
		return nil, nil, errors.New("ports: the list is empty: leave the key out for all ports")
	}
	for _, w := range r.Ports {
		p, err := portOf(w)
		if err != nil {
			return nil, nil, fmt.Errorf("ports: %w", err)
		}
		ports = append(ports, p)
	}
	return out, ports, nil
}

// selectorOf parses a label selector. "*" selects everything; an empty one is an error, because it is probably a mistake.
func selectorOf(text string) (*metav1.LabelSelector, error) {
	switch text {
	case "":
		return nil, errors.New(`want labels, such as "app=web", or "*"`)
	case "*":
		return &metav1.LabelSelector{}, nil
	}
	if err := oneValue(text); err != nil {
		return nil, err
	}
	return metav1.ParseToLabelSelector(text)
}

// peerOf parses an address, a prefix or a label selector.
func peerOf(text string) (networkingv1.NetworkPolicyPeer, error) {
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		text = netip.PrefixFrom(a, a.BitLen()).String()
	}
	if _, err := netip.ParsePrefix(text); err == nil {
		return networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: text}}, nil
	}
	s, err := selectorOf(text)
	if err == nil && strings.ContainsAny(text[:1], "0123456789:") {
		err = errors.New("labels begin with a letter here")
	}
	if err != nil {
		return networkingv1.NetworkPolicyPeer{}, fmt.Errorf("%q is neither an address, nor a prefix, nor labels: %w", text, err)
	}
	return networkingv1.NetworkPolicyPeer{PodSelector: s}, nil
}

// portOf parses "80", "53/udp" or "8000-8080/tcp".
func portOf(text string) (p networkingv1.NetworkPolicyPort, err error) {
	wrong := fmt.Errorf(`%q: want a port such as 80, "53/udp" or "8000-8080/tcp"`, text)
	numbers, protocol, hasProtocol := strings.Cut(text, "/")
	if !hasProtocol {
		protocol = "tcp"
	}
	proto := corev1.Protocol(strings.ToUpper(protocol))
	switch proto {
	case corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP:
	default:
		return p, wrong
	}
	first, last, isRange := strings.Cut(numbers, "-")
	from, err := strconv.ParseUint(first, 10, 16)
	if err != nil || from == 0 {
		return p, wrong
	}
	port := intstr.FromInt32(int32(from))
	p = networkingv1.NetworkPolicyPort{Protocol: &proto, Port: &port}
	if !isRange {
		return p, nil
	}
	to, err := strconv.ParseUint(last, 10, 16)
	if err != nil || to < from {
		return p, wrong
	}
	end := int32(to)
	p.EndPort = &end
	return p, nil
}

// oneValue returns an error for a selector that wants two values of one label. The parser would take the last one.
func oneValue(text string) error {
	requirements, err := labels.ParseToRequirements(text)
	if err != nil {
		return nil // the parser of the selector reports it
	}
	values := map[string]string{}
	for _, r := range requirements {
		if r.Operator() != selection.Equals && r.Operator() != selection.DoubleEquals {
			continue
		}
		value := strings.Join(r.ValuesUnsorted(), "")
		if other, twice := values[r.Key()]; twice {
			return fmt.Errorf(`two values for the label %q: for either of them, write "%s in (%s,%s)"`, r.Key(), r.Key(), other, value)
		}
		values[r.Key()] = value
	}
	return nil
}
