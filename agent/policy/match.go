package policy

import (
	"slices"
	"strconv"
)

// match writes the nftables rules for one rule of a policy.
func (b *builder) match(d direction, r rule, verdict, comment string) {
	peers, ports := b.peers(d, r), b.ports(r)
	for _, x := range slices.Concat(peers, ports) {
		b.shared = append(b.shared, x.shared...)
	}
	for _, peer := range peers {
		for _, port := range ports {
			if family, ok := commonFamily(peer, port); ok && (family == anyFamily || b.c.families[family]) {
				b.add(peer.text+port.text+verdict, comment)
			}
		}
	}
}

// condition is a part of an nftables rule.
type condition struct {
	family int // 0, 1 or anyFamily
	text   string
	shared []*shared
}

const anyFamily = -1

func commonFamily(a, b condition) (family int, ok bool) {
	switch {
	case a.family == anyFamily:
		return b.family, true
	case b.family == anyFamily || a.family == b.family:
		return a.family, true
	}
	return 0, false
}

var ipWords = [2]string{"ip ", "ip6 "}

// peers returns the conditions on the other end, of which one must hold.
func (b *builder) peers(d direction, r rule) (out []condition) {
	if r.anyPeer {
		return []condition{{family: anyFamily}}
	}
	field := "saddr @"
	if d == egress {
		field = "daddr @"
	}
	add := func(x *shared) {
		for f := range ipWords {
			if len(b.c.table.Sets[x.set(f)].Elements) > 0 || !x.static {
				out = append(out, condition{f, ipWords[f] + field + x.set(f) + " ", []*shared{x}})
			}
		}
	}
	for _, s := range r.pods {
		add(b.c.podSet(s))
	}
	for _, s := range r.nodes {
		add(b.c.nodeSet(s))
	}
	if len(r.blocks) > 0 {
		add(b.c.blockSet(r.blocks))
	}
	return out
}

// ports returns the conditions on the protocol and the port, of which one must hold.
func (b *builder) ports(r rule) (out []condition) {
	if r.anyPort {
		return []condition{{family: anyFamily}}
	}
	list := mergePorts(slices.Clone(r.ports))
	switch {
	case len(list) == 1 && list[0].first == 0:
		out = append(out, condition{anyFamily, "meta l4proto " + list[0].protocol + " ", nil})
	case len(list) == 1 && list[0].first == list[0].last:
		out = append(out, condition{anyFamily, "meta l4proto " + list[0].protocol + " th dport " + strconv.Itoa(int(list[0].first)) + " ", nil})
	case len(list) > 0:
		x := b.c.portSet(list)
		out = append(out, condition{anyFamily, "meta l4proto . th dport @" + x.name + " ", []*shared{x}})
	}
	if len(r.named) > 0 { // one set for all of them, so that the rules are not peers times ports
		x := b.c.namedPortSet(r.named)
		for f := range ipWords {
			out = append(out, condition{f, ipWords[f] + "daddr . meta l4proto . th dport @" + x.set(f) + " ", []*shared{x}})
		}
	}
	return out
}
