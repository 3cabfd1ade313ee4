package policy

import (
	"net/netip"
	"slices"
	"strings"
)

// The API may not have a pod's address yet when the pod sends its first packet. A rule that allows pods does not match it,
// which is safe. A rule that denies pods, or hands them to NetworkPolicies, must not let it pass for that reason.

// SetPodNetworks sets the networks that pods have their addresses from.
func (c *Compiler) SetPodNetworks(list []netip.Prefix) {
	var ranges []addrRange
	for _, p := range list {
		if p.IsValid() {
			ranges = append(ranges, rangeOf(p.Masked()))
		}
	}
	if ranges = mergeAddrs(ranges); slices.Equal(ranges, c.podNetworks) {
		return
	}
	c.podNetworks = ranges
	for _, ch := range sortedValues(c.chains) {
		if c.chains[ch.name] == ch { // filling another chain may delete it
			c.fill(ch)
		}
	}
}

// unknownChain is part of the name of a chain that drops the packets of unknown pods.
const unknownChain = "-unknown-"

// PodNetworks returns the networks of unknown pods in the rules.
func (k *Kernel) PodNetworks() (out []netip.Prefix) {
	v := NewEvaluator(k.Table)
	var ranges []addrRange
	for name := range k.Table.Chains {
		rules, _ := v.parsed(name) // Explain reports an invalid rule that matters
		for _, r := range rules {
			for _, m := range r.matches {
				if m.set != nil && strings.Contains(r.verdict.target, unknownChain) {
					ranges = append(ranges, m.set.addrs...)
				}
			}
		}
	}
	for _, r := range mergeAddrs(ranges) {
		out = append(out, r.prefixes()...)
	}
	return out
}

// dropUnknown drops what a rule about pods would match if it were of a pod that is not known yet: the other end has an
// address of a pod network, and belongs to no node and no pod that is known with its namespace.
func (b *builder) dropUnknown(d direction, id string, r rule) {
	why := id + " " + r.name + ": unknown pod"
	name := b.c.chain(d.String()+unknownChain+hash(why), nil, func(b *builder) {
		everybody := rule{pods: []podSelector{{known: true}}, nodes: []labelSelector{{}}, anyPort: true}
		b.match(d, everybody, "return", "")
		b.drop(d, why)
	})
	b.calls = append(b.calls, name)
	unknown := rule{blocks: b.c.podNetworks, ports: r.ports, anyPort: r.anyPort || len(r.named) > 0}
	b.match(d, unknown, "jump "+name, why)
}
