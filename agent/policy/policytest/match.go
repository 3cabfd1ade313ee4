package policytest

import (
	"net/netip"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"

	"github.com/fairlead/fairlead/agent/policy"
)

// answer says whether a part of a rule matches.
type answer int

const (
	no answer = iota
	yes
	invalid
)

func is(b bool) answer {
	if b {
		return yes
	}
	return no
}

func not(a answer) answer {
	if a == invalid {
		return invalid
	}
	return is(a == no)
}

// both is invalid if one of its parts is.
func both(a, b answer) answer {
	if a == invalid || b == invalid {
		return invalid
	}
	return min(a, b)
}

// anyOf is invalid if one element is.
func anyOf[T any](list []T, match func(T) answer) answer {
	out := no
	for _, e := range list {
		out = max(out, match(e))
	}
	return out
}

// anyOrAbsent is anyOf for a list that restricts nothing if it is absent or empty.
func anyOrAbsent[T any](list []T, match func(T) answer) answer {
	if len(list) == 0 {
		return yes
	}
	return anyOf(list, match)
}

func count(set ...bool) int {
	n := 0
	for _, s := range set {
		n += int(is(s))
	}
	return n
}

// everything selects all objects.
func everything() *metav1.LabelSelector { return &metav1.LabelSelector{} }

// selects evaluates a label selector. The API's own validation says whether it is valid.
func selects(s *metav1.LabelSelector, labels map[string]string) answer {
	if len(validation.ValidateLabelSelector(s, validation.LabelSelectorValidationOptions{}, nil)) > 0 {
		return invalid
	}
	for k, want := range s.MatchLabels {
		if got, ok := labels[k]; !ok || got != want {
			return no
		}
	}
	for _, r := range s.MatchExpressions {
		got, ok := labels[r.Key]
		listed := ok && slices.Contains(r.Values, got)
		if r.Operator == metav1.LabelSelectorOpIn && !listed || r.Operator == metav1.LabelSelectorOpNotIn && listed ||
			r.Operator == metav1.LabelSelectorOpExists && !ok || r.Operator == metav1.LabelSelectorOpDoesNotExist && ok {
			return no
		}
	}
	return yes
}

// pods answers whether an endpoint and its namespace have the labels. Selectors are validated also without an endpoint.
func (f flow) pods(e *policy.Endpoint, namespaces, pods *metav1.LabelSelector) answer {
	if e == nil {
		return both(f.pods(&policy.Endpoint{}, namespaces, pods), no)
	}
	return both(selects(namespaces, f.w.Namespaces[e.Namespace]), selects(pods, e.Labels))
}

// within answers whether the peer's address is in a CIDR. Bits behind the prefix are ignored, as Kubernetes does.
func (f flow) within(cidr string) answer {
	p, err := netip.ParsePrefix(cidr)
	if err != nil {
		return invalid
	}
	return is(p.Contains(f.address))
}

func (f flow) number(protocol string, first, last int32) answer {
	if first < 1 || last > 65535 || first > last {
		return invalid
	}
	return is(f.p.Protocol == protocol && first <= int32(f.p.Port) && int32(f.p.Port) <= last)
}

// named answers whether the destination is an endpoint whose port has the name.
func (f flow) named(name string) answer {
	return is(f.dst != nil && slices.Contains(f.dst.Ports, policy.NamedPort{Name: name, Protocol: f.p.Protocol, Number: f.p.Port}))
}
