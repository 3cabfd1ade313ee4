package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/kernel/nftable"
)

// Explanation says what policy does with a connection, and which rules decide.
type Explanation struct {
	Allowed bool   `json:"allowed"`
	Egress  string `json:"egress"`  // what decides at the source
	Ingress string `json:"ingress"` // what decides at the destination
}

// Explain says what policy does with the first packet of a connection. The tables of the nodes that forward it decide,
// as the kernel would evaluate them.
func (w *World) Explain(p Packet) (out Explanation, err error) {
	out = Explanation{Allowed: true}
	for _, d := range []direction{egress, ingress} {
		allowed, why, err := w.explain(p, d)
		if err != nil {
			return Explanation{}, err
		}
		out.Allowed = out.Allowed && allowed
		if d == egress {
			out.Egress = why
		} else {
			out.Ingress = why
		}
	}
	return out, nil
}

func (w *World) explain(p Packet, d direction) (allowed bool, why string, err error) {
	a := p.end(d)
	e := w.EndpointOf(a)
	switch {
	case e == nil:
		return true, fmt.Sprintf("%s is not a pod: policy does not apply", a), nil
	case w.onNode(e.Node, p.Src):
		return true, "a node always reaches its pods", nil
	case w.EndpointOf(p.Src) == w.EndpointOf(p.Dst):
		return true, "a pod always reaches itself", nil
	}
	base := int(d)
	if w.onNode(e.Node, p.Dst) {
		base = toNode
	}
	x, err := decideAt(Compile(w.at(e, a), e.Node), p, base, EndpointKey(e.Namespace, e.Name))
	if !x.allowed && parseComment(x.rule).Isolated { // the comment may be too short for all of them
		x.why = noRule + ": " + strings.Join(w.isolating(e, d), ", ")
	}
	return x.allowed, x.why, err
}

// end returns the address for which a direction is decided.
func (p Packet) end(d direction) netip.Addr {
	if d == egress {
		return p.Src
	}
	return p.Dst
}

// decided is the decision of a node's rules in one direction.
type decided struct {
	allowed bool
	rule    string // comment of the rule that decided
	why     string
}

// decideAt returns what a node's rules decide for one of its endpoints.
func decideAt(t *nftable.Table, p Packet, base int, name string) (decided, error) {
	v, d := NewEvaluator(t).evaluate(p), directionOf(base)
	verdict, err := v.chain(baseChain(base))
	x := decided{allowed: verdict != "drop", rule: v.comment, why: v.comment}
	switch {
	case x.rule != "":
	case base == toNode && !hasElement(t, mapFor(base, familyOf(p.Src)), p.Src.String()):
		x.why = "no ClusterNetworkPolicy selects " + name + ", and NetworkPolicies allow a pod to reach its own node"
	case !hasElement(t, mapOf(d, familyOf(p.end(d))), p.end(d).String()):
		x.why = "no policy selects " + name
	default:
		x.why = "no rule matches"
	}
	return x, err
}

func hasElement(t *nftable.Table, set, key string) bool {
	if t.Sets[set] == nil {
		return false
	}
	_, has := t.Sets[set].Elements[key]
	return has
}

// isolating returns the NetworkPolicies that select an endpoint.
func (w *World) isolating(e *Endpoint, d direction) (out []string) {
	labels, known := w.Namespaces[e.Namespace]
	for _, np := range w.Policies {
		if p := fromNetworkPolicy(np); p.applies[d] && p.subject.matches(e.Namespace, known, labels, e.Labels) {
			out = append(out, p.id)
		}
	}
	slices.Sort(out)
	return out
}

// EndpointOf returns the endpoint with an address: the newest one. It returns nil if there is none.
func (w *World) EndpointOf(a netip.Addr) *Endpoint {
	s := newEndpoints()
	for _, e := range w.Endpoints {
		if slices.Contains(e.Addresses, a) {
			s.add(EndpointKey(e.Namespace, e.Name), e)
		}
	}
	return s.byKey[s.owner(a)]
}

// Names returns a function for the owners of addresses: see Compiler.Name.
func (w *World) Names() func(netip.Addr) (pod, node string) { return w.compiler("").Name }

// onNode reports whether an address is a node's. An isolated network has no addresses of nodes in its namespace.
func (w *World) onNode(node string, a netip.Addr) bool {
	return w.network == "" && slices.ContainsFunc(w.Nodes, func(n *Node) bool { return n.Name == node && slices.Contains(n.Addresses, a) })
}

// Selection is a policy with the endpoints that it selects.
type Selection struct {
	Policy    string   `json:"policy"`
	Endpoints []string `json:"endpoints"`
	Problems  []string `json:"problems,omitempty"` // parts that are invalid
	Nodes     []string `json:"-"`                  // of the endpoints, sorted
}

// Selections returns what each policy selects, in the order in which they apply.
func (w *World) Selections() (out []Selection) {
	var all []*rules
	for _, np := range w.Policies {
		all = append(all, fromNetworkPolicy(np))
	}
	for _, cnp := range w.ClusterPolicies {
		all = append(all, fromClusterPolicy(cnp))
	}
	slices.SortFunc(all, compareRules)
	byNamespace := map[string][]*Endpoint{}
	for _, e := range w.Endpoints {
		byNamespace[e.Namespace] = append(byNamespace[e.Namespace], e)
	}
	for _, p := range all {
		s := Selection{Policy: p.id, Endpoints: []string{}}
		candidates := w.Endpoints
		if p.subject.namespace != "" {
			candidates = byNamespace[p.subject.namespace]
		}
		for _, e := range candidates {
			labels, known := w.Namespaces[e.Namespace]
			if !p.noPods && p.subject.matches(e.Namespace, known, labels, e.Labels) {
				s.Endpoints = append(s.Endpoints, EndpointKey(e.Namespace, e.Name))
				s.Nodes = append(s.Nodes, e.Node)
			}
		}
		slices.Sort(s.Nodes)
		s.Nodes = slices.Compact(s.Nodes)
		slices.Sort(s.Endpoints)
		for _, err := range p.problems {
			s.Problems = append(s.Problems, strings.ReplaceAll(err.Error(), "\n", "; "))
		}
		out = append(out, s)
	}
	return out
}
