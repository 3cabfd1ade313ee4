package policy

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/kernel/nftable"
)

// KernelExplanation says what the rules in a node's kernel do with a connection.
type KernelExplanation struct {
	Explanation
	Local   bool     `json:"local"`             // an end is a pod of the node. If not, its rules decide nothing
	Differs []string `json:"differs,omitempty"` // differences from the decision of the policies
}

// Kernel is a node with the rules that its kernel has.
type Kernel struct {
	Table *nftable.Table
	Own   []netip.Addr // addresses of the node
}

// Explain says what the rules do with the first packet of a connection. If w is not nil, Explain compares that with
// what they should do: the decision and the rule for each end on this node.
func (k *Kernel) Explain(w *World, p Packet) (out KernelExplanation, err error) {
	if err := k.check(); err != nil {
		return out, err
	}
	out.Allowed = true
	for _, d := range []direction{egress, ingress} {
		x, local, err := k.decide(p, d)
		if err != nil {
			return out, fmt.Errorf("the kernel's rules: %w", err)
		}
		out.Local = out.Local || local
		out.Allowed = out.Allowed && x.allowed
		if d == egress {
			out.Egress = x.why
		} else {
			out.Ingress = x.why
		}
		if w == nil || k.isOwn(p) {
			continue
		}
		problem, err := k.compare(w, p, d, x, local)
		if err != nil {
			return out, err
		}
		if problem != "" {
			out.Differs = append(out.Differs, d.String()+": "+problem)
		}
	}
	return out, nil
}

// check returns an error if other chains than those of policy see packets.
func (k *Kernel) check() error {
	hooks := baseHooks()
	for name, c := range k.Table.Chains {
		if c.Hook != hooks[name] {
			return fmt.Errorf("the kernel's table %s has the chain %s with the hook %q, want %q", k.Table.Name, name, c.Hook, hooks[name])
		}
	}
	return nil
}

func (k *Kernel) isOwn(p Packet) bool {
	return slices.Contains(k.Own, p.Src) || slices.Contains(k.Own, p.Dst)
}

// decide returns what the kernel's rules decide in one direction, and whether the end is a pod of the node.
func (k *Kernel) decide(p Packet, d direction) (x decided, local bool, err error) {
	a := p.end(d)
	local = hasElement(k.Table, selfSet(familyOf(a)), a.String()+" . "+a.String()) ||
		hasElement(k.Table, mapOf(egress, familyOf(a)), a.String()) // an address that is closed has no pod yet
	switch {
	case local && d == egress && slices.Contains(k.Own, p.Dst):
		x, err = decideAt(k.Table, p, toNode, a.String())
		return x, true, err
	case k.isOwn(p):
		return decided{allowed: true, why: "a node always reaches its pods"}, local, nil
	case !local:
		return decided{allowed: true, why: a.String() + " is not a pod of this node"}, false, nil
	}
	x, err = decideAt(k.Table, p, int(d), a.String())
	return x, true, err
}

// compare returns how the kernel's decision differs from that of the policies.
func (k *Kernel) compare(w *World, p Packet, d direction, have decided, local bool) (problem string, err error) {
	e := w.EndpointOf(p.end(d))
	here := ""
	for _, n := range w.Nodes {
		if slices.ContainsFunc(k.Own, func(a netip.Addr) bool { return slices.Contains(n.Addresses, a) }) {
			here = n.Name
		}
	}
	switch {
	case e == nil && !local || here == "" && !local || e != nil && here != "" && e.Node != here && !local:
		return "", nil
	case e == nil:
		return "the kernel has rules for " + p.end(d).String() + ", which is not a pod", nil
	case w.at(e, p.end(d)) != w && !local:
		return "", nil // the table of a peer decides
	case here != "" && e.Node != here:
		return "the kernel has rules for " + EndpointKey(e.Namespace, e.Name) + ", which is on the node " + e.Node, nil
	case !local:
		return "the kernel does not know " + EndpointKey(e.Namespace, e.Name), nil
	}
	want, err := decideAt(Compile(w, e.Node), p, int(d), "")
	if err != nil || have.allowed == want.allowed && have.rule == want.rule {
		return "", err
	}
	return fmt.Sprintf("the kernel's rules decide %s, the policies %s", have, want), nil
}

func (x decided) String() string {
	word := "allowed"
	if !x.allowed {
		word = "dropped"
	}
	if x.rule == "" {
		return word
	}
	return word + " by " + x.rule
}
