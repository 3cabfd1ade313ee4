package policy

import (
	"slices"
	"strings"

	"github.com/fairlead/fairlead/kernel/nftable"
)

// Policy's table.
const (
	TableFamily = "inet"
	TableName   = "fairlead-policy"
)

// chain is a chain of the table that endpoints or other chains use.
type chain struct {
	name     string
	refs     int
	policies []string // whose rules it contains
	build    func(*builder)

	shared []string // what it uses now
	calls  []string // chains that it jumps to
}

// builder writes the rules of a chain.
type builder struct {
	c      *Compiler
	rules  []nftable.Rule
	shared []*shared
	calls  []string
}

// Base chains run before the filters of other software, at priority 0. Egress is first. A packet passes only if both
// accept it: accept ends one base chain, and the packet goes on to the next.
//
// IPVS, which kube-proxy can use for Services, takes a packet from the input hook and sends it through the output hook
// to the pod that it chose (ip_vs_nat_send_or_cont, since Linux 3.13). Such a packet never passes the forward hook. The rules
// for packets to the node run after IPVS (priorities 98 and 99 in ip_vs_core.c): before, a Service would count as the node.
const (
	egressHook  = "type filter hook forward priority -10"
	ingressHook = "type filter hook forward priority -9"
	nodeHook    = "type filter hook input priority 101"

	egressIPVSHook  = "type filter hook output priority -10"
	ingressIPVSHook = "type filter hook output priority -9"
)

// baseChain returns the name of the base chain for a direction or toNode.
func baseChain(i int) string {
	if i == toNode {
		return "node"
	}
	return direction(i).String()
}

// ipvsChain returns the name of the base chain of a direction for packets of IPVS.
func ipvsChain(d direction) string { return "ipvs-" + d.String() }

// baseHooks are the hooks of the base chains.
func baseHooks() map[string]string {
	return map[string]string{
		baseChain(int(egress)): egressHook, baseChain(int(ingress)): ingressHook, baseChain(toNode): nodeHook,
		ipvsChain(egress): egressIPVSHook, ipvsChain(ingress): ingressIPVSHook,
	}
}

// Policy does not apply to the ICMPv6 messages without which IPv6 does not work between neighbours: RFC 4861, RFC 2710 and
// RFC 3810. A bridge whose packets pass netfilter forwards them. Policy applies to those with another hop limit, which a host
// routed. Their receivers ignore them, but a pod could send any data in them to everybody.
var (
	discovery = []string{"nd-router-solicit", "nd-router-advert", "nd-neighbor-solicit", "nd-neighbor-advert", "nd-redirect"}
	listeners = []string{"mld-listener-query", "mld-listener-report", "mld-listener-done", "mld2-listener-report"}
)

const (
	discoverySet = "discovery"
	listenersSet = "listeners"
)

// discoveryRules are the rules that accept these messages. A host decreases the hop limit before its rules see a packet, so
// that 2 becomes 1. So messages of listeners must also have a multicast address: hosts do not route these.
func discoveryRules() []nftable.Rule {
	return []nftable.Rule{
		{Text: "ip6 hoplimit 255 icmpv6 type @" + discoverySet + " accept"},
		{Text: "ip6 hoplimit 1 ip6 daddr @" + multicastSet + "6 icmpv6 type @" + listenersSet + " accept"},
	}
}

// addBase adds what every table has: the base chains, and the maps and sets that they use.
func (c *Compiler) addBase() {
	for set, types := range map[string][]string{discoverySet: discovery, listenersSet: listeners} {
		c.set(set, "icmpv6_type", false)
		for _, name := range types {
			c.setKey(set, name, "")
		}
	}
	for f, typ := range addrTypes {
		name := multicastSet + [2]string{"4", "6"}[f]
		c.set(name, typ, true)
		c.setKey(name, multicastRanges[f].String(), "")
	}
	for i := range toNode + 1 {
		for f := range addrTypes {
			c.set(mapFor(i, f), addrTypes[f]+" : verdict", false)
			c.set(selfSet(f), addrTypes[f]+" . "+addrTypes[f], false)
		}
		c.setBase(i)
	}
	c.addDrops()
}

// setBase writes the base chains of a direction, or that of toNode.
func (c *Compiler) setBase(i int) {
	field := "saddr"
	begin := append([]nftable.Rule{{Text: "ct state established,related accept"}}, discoveryRules()...)
	var multicast, end []nftable.Rule
	if i == int(ingress) {
		field = "daddr"
		multicast = c.multicastRules()
	}
	for f, ip := range [2]string{"ip", "ip6"} {
		end = append(end, nftable.Rule{Text: ip + " saddr . " + ip + " daddr @" + selfSet(f) + " accept"},
			nftable.Rule{Text: ip + " " + field + " vmap @" + mapFor(i, f)})
	}
	set := func(name string, rules ...[]nftable.Rule) {
		c.setChain(name, &nftable.Chain{Hook: baseHooks()[name], Rules: slices.Concat(rules...)})
	}
	set(baseChain(i), begin, multicast, end)
	switch {
	case i == toNode:
	case c.noIPVS:
		c.setChain(ipvsChain(directionOf(i)), nil)
	default: // the node's own packets pass the output hook, too, and a node always reaches its pods
		set(ipvsChain(directionOf(i)), begin, []nftable.Rule{{Text: RuleForIPVS()}}, end)
	}
}

// RuleForIPVS returns the rule that uses the kernel feature without which policy does not apply to packets of IPVS.
func RuleForIPVS() string { return "fib saddr type local accept" }

// WithoutIPVS makes the compiler write no rules for packets of IPVS, for kernels that lack what RuleForIPVS needs.
func (c *Compiler) WithoutIPVS() {
	c.noIPVS = true
	c.setBase(int(egress))
	c.setBase(int(ingress))
}

// profileChain returns the chain for the policies of each tier. The rules of ClusterNetworkPolicies are in it, or in a
// second chain for what comes after Pass. Each NetworkPolicy has a chain of its own.
func (c *Compiler) profileChain(i int, ids [tiers][]string) string {
	admin, network, baseline := ids[adminTier], ids[networkTier], ids[baselineTier]
	if len(admin)+len(network)+len(baseline) == 0 {
		return ""
	}
	d := directionOf(i)
	name := d.String() + "-"
	if i == toNode {
		name += "node-"
	}
	name += hash(strings.Join(slices.Concat(admin, []string{"/"}, network, baseline), "\n"))
	if len(admin) > 0 {
		next := c.profileChain(i, [tiers][]string{nil, network, baseline})
		return c.chain(name, admin, func(b *builder) { b.tier(i, admin, "goto ", next) })
	}
	if len(network) > 0 {
		return c.chain(name, nil, func(b *builder) {
			for _, id := range network {
				b.jump(c.policyChain(d, id), id)
			}
			b.drop(d, noRule+": "+strings.ReplaceAll(strings.Join(network, ", "), networkPolicyPrefix, ""))
		})
	}
	return c.chain(name, baseline, func(b *builder) { b.tier(i, baseline, "", "") })
}

// policyChain returns the chain of a NetworkPolicy's rules for a direction.
func (c *Compiler) policyChain(d direction, id string) string {
	return c.chain(d.String()+"-of-"+hash(id), []string{id}, func(b *builder) {
		if p := c.policies[id]; p != nil {
			for _, r := range p.rules[d] {
				b.match(d, r, "counter accept", id+" "+r.name)
			}
		}
	})
}

// tier writes the rules of ClusterNetworkPolicies, and then goes on to the next chain, if there is one.
func (b *builder) tier(i int, ids []string, verb, next string) {
	d := directionOf(i)
	onward := "accept"
	if next != "" {
		onward = verb + next
		b.calls = append(b.calls, next)
	}
	for _, id := range ids {
		p := b.c.policies[id]
		if p == nil {
			continue
		}
		for _, r := range p.rules[d] {
			verdict := "counter accept"
			switch r.action {
			case deny:
				verdict = "goto " + b.denyChain(d, id, r)
			case pass:
				verdict = "counter " + onward
			}
			if i != toNode && r.action != accept && len(r.pods) > 0 && len(b.c.podNetworks) > 0 {
				b.dropUnknown(d, id, r)
			}
			b.match(d, r, verdict, id+" "+r.name)
		}
	}
	if next != "" {
		b.add(onward, "")
	}
}

func (b *builder) jump(name, comment string) {
	b.calls = append(b.calls, name)
	b.add("jump "+name, comment)
}

func (b *builder) add(text, comment string) {
	b.rules = append(b.rules, nftable.Rule{Text: strings.TrimSpace(text), Comment: shorten(comment)})
}

// chain returns the name of a chain, and creates it if necessary.
func (c *Compiler) chain(name string, policies []string, build func(*builder)) string {
	if c.chains[name] == nil {
		ch := &chain{name: name, policies: policies, build: build}
		c.chains[name] = ch
		for _, id := range policies {
			include(c.chainsWith, id, name)
		}
		c.fill(ch)
	}
	return name
}

// fill writes a chain's rules. Then it releases the sets and chains that the rules no longer use.
func (c *Compiler) fill(ch *chain) {
	b := &builder{c: c}
	ch.build(b)
	oldShared, oldCalls := ch.shared, ch.calls
	ch.shared, ch.calls = nil, b.calls
	for _, x := range b.shared {
		x.refs++
		ch.shared = append(ch.shared, x.name)
	}
	for _, name := range b.calls {
		c.useChain(name)
	}
	c.setChain(ch.name, &nftable.Chain{Rules: b.rules})
	for _, name := range oldShared {
		c.drop(name)
	}
	for _, name := range oldCalls {
		c.dropChain(name)
	}
}

// setChain writes a chain of the table, or deletes it if it is nil.
func (c *Compiler) setChain(name string, now *nftable.Chain) {
	have := c.table.Chains[name]
	switch {
	case now == nil && have == nil || now != nil && have != nil && slices.Equal(have.Rules, now.Rules):
		return
	case now == nil:
		delete(c.table.Chains, name)
	default:
		c.table.Chains[name] = now
	}
	c.changes.Chains[name] = true
}

func (c *Compiler) useChain(name string) {
	if name != "" {
		c.chains[name].refs++
	}
}

// dropChain ends one use of a chain. Without uses, it is deleted.
func (c *Compiler) dropChain(name string) {
	if name == "" {
		return
	}
	ch := c.chains[name]
	if ch.refs--; ch.refs > 0 {
		return
	}
	delete(c.chains, name)
	for _, id := range ch.policies {
		exclude(c.chainsWith, id, name)
	}
	c.setChain(name, nil)
	for _, x := range ch.shared {
		c.drop(x)
	}
	for _, other := range ch.calls {
		c.dropChain(other)
	}
}
