package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Explanation says what policy does with a connection, and which rules decide.
type Explanation struct {
	Allowed bool   `json:"allowed"`
	Egress  string `json:"egress"`  // what decides at the source
	Ingress string `json:"ingress"` // what decides at the destination
}

// Explain says what policy does with the first packet of a connection. The tables of the nodes that forward it decide, as
// the kernel would evaluate them.
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
	a := p.Src
	if d == ingress {
		a = p.Dst
	}
	e := w.EndpointOf(a)
	switch {
	case e == nil:
		return true, fmt.Sprintf("%s is no pod: policy does not apply", a), nil
	case w.onNode(e.Node, p.Src) || w.onNode(e.Node, p.Dst):
		return true, "a pod and its node always reach each other", nil
	case w.EndpointOf(p.Src) == w.EndpointOf(p.Dst):
		return true, "a pod always reaches itself", nil
	}
	table := Compile(w, e.Node)
	v := evaluation{table: table, packet: p}
	verdict, err := v.chain(d.String())
	if err != nil {
		return false, "", err
	}
	allowed = verdict != "drop"
	switch {
	case v.comment != "":
		why = v.comment
	case table.Sets[mapOf(d, familyOf(a))].Elements[a.String()] == "":
		why = "no policy selects " + EndpointKey(e.Namespace, e.Name)
	default:
		why = "no rule matches"
	}
	if !allowed && parseComment(v.comment).Isolated { // the comment may be too short for all of them
		why = noRule + ": " + strings.Join(w.isolating(e, d), ", ")
	}
	return allowed, why, nil
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

func (w *World) onNode(node string, a netip.Addr) bool {
	return slices.ContainsFunc(w.Nodes, func(n *Node) bool { return n.Name == node && slices.Contains(n.Addresses, a) })
}

// Selection is a policy with the endpoints that it selects.
type Selection struct {
	Policy    string   `json:"policy"`
	Endpoints []string `json:"endpoints"`
	Problems  []string `json:"problems,omitempty"` // parts that are invalid
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
	for _, p := range all {
		s := Selection{Policy: p.id, Endpoints: []string{}}
		for _, e := range w.Endpoints {
			labels, known := w.Namespaces[e.Namespace]
			if !p.noPods && p.subject.matches(e.Namespace, known, labels, e.Labels) {
				s.Endpoints = append(s.Endpoints, EndpointKey(e.Namespace, e.Name))
			}
		}
		slices.Sort(s.Endpoints)
		for _, err := range p.problems {
			s.Problems = append(s.Problems, strings.ReplaceAll(err.Error(), "\n", "; "))
		}
		out = append(out, s)
	}
	return out
}
