package policy

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/fairlead/fairlead/kernel/nftable"
)

// LogGroup is the netfilter log group that gets the dropped packets: see nft(8), log. Without a listener, the kernel sends
// none.
const LogGroup = 5470

// Each chain that drops packets reports a few of them, so that a flood neither loads the host nor hides what other chains
// drop.
const (
	LogRate  = 10 // packets a second of each chain
	logBurst = 20 // packets at once
)

// UnreportedChain drops the packets beyond the limit. The counter of its rule has their number.
const UnreportedChain = "unreported"

// Reasons for a drop that belong to no rule of a policy.
const (
	noRule     = "no NetworkPolicy allows it"
	noLabels   = "the policies of the pod are not known yet"
	overLimits = "dropped packets that were not reported: too many in a second"
)

// closedChain returns the chain for endpoints whose policies are not known.
func closedChain(d direction) string { return d.String() + "-closed" }

// WithoutLog makes the compiler write rules that do not report dropped packets, for kernels that lack what RuleThatLogs
// needs.
func (c *Compiler) WithoutLog() {
	c.noLog = true
	c.addDrops()
	for _, ch := range sortedValues(c.chains) {
		c.fill(ch)
	}
}

// RuleThatLogs returns a rule that uses every kernel feature by which dropped packets are reported.
func RuleThatLogs() string { return "limit rate over 1/second burst 1 packets " + logTo("x") + " drop" }

func logTo(prefix string) string {
	return fmt.Sprintf(`log prefix "%s" group %d`, prefix, LogGroup)
}

// addDrops adds the chains that drop packets in every table.
func (c *Compiler) addDrops() {
	for _, d := range []direction{ingress, egress} {
		b := &builder{c: c}
		b.drop(d, noLabels)
		c.setChain(closedChain(d), &nftable.Chain{Rules: b.rules})
	}
	c.addMulticastDrop()
	if c.noLog {
		c.setChain(UnreportedChain, nil)
		return
	}
	b := &builder{c: c}
	b.add("counter drop", overLimits)
	c.setChain(UnreportedChain, &nftable.Chain{Rules: b.rules})
}

// denyChain returns the chain that drops what a rule of a ClusterNetworkPolicy denies.
func (b *builder) denyChain(d direction, id string, r rule) string {
	why := id + " " + r.name
	name := b.c.chain(d.String()+"-deny-"+hash(why), nil, func(b *builder) { b.drop(d, why) })
	b.calls = append(b.calls, name)
	return name
}

// drop writes the rules that count a packet, report it, and drop it.
func (b *builder) drop(d direction, why string) {
	if b.c.noLog {
		b.add("counter drop", why)
		return
	}
	b.add(fmt.Sprintf("counter limit rate over %d/second burst %d packets goto %s", LogRate, logBurst, UnreportedChain), why)
	b.add(logTo(reason(d, why))+" drop", why)
}

const maxText = 127 // bytes of a comment and of a log prefix, nft(8)

// reason returns the prefix of a report. ParseReason reads it.
func reason(d direction, why string) string { return shorten(d.String() + ": " + why) }

// Reason says why a packet was dropped, or which rule has counted it.
type Reason struct {
	Direction string   // "ingress" or "egress"
	Policies  []string // IDs of the policies: the one with the rule, or NetworkPolicies that do not allow the packet
	Rule      string   // of the policy: "ingress[0]"
	Isolated  bool     // no NetworkPolicy allows the packet
	Cut       bool     // the names are too long: some policies, or the end of the rule, are missing
	Text      string
}

// ParseReason reads the prefix of a report.
func ParseReason(prefix string) (Reason, error) {
	direction, text, ok := strings.Cut(prefix, ": ")
	if !ok || direction != ingress.String() && direction != egress.String() {
		return Reason{}, fmt.Errorf("a packet with the log prefix %q is not of network policy", prefix)
	}
	r := parseComment(text)
	r.Direction = direction
	return r, nil
}

// parseComment reads the comment of a rule that decides.
func parseComment(text string) Reason {
	r := Reason{Text: text}
	text, r.Cut = strings.CutSuffix(text, ellipsis)
	if names, isolated := strings.CutPrefix(text, noRule+": "); isolated {
		r.Isolated = true
		list := strings.Split(names, ", ")
		if r.Cut {
			list = list[:len(list)-1] // perhaps not the whole name
		}
		for _, name := range list {
			r.Policies = append(r.Policies, networkPolicyPrefix+name)
		}
		return r
	}
	words := strings.SplitN(text, " ", 3)
	if kind := words[0] + " "; len(words) == 3 && (kind == clusterPolicyPrefix || kind == networkPolicyPrefix) {
		r.Policies, r.Rule = []string{kind + words[1]}, words[2]
	}
	return r
}

const ellipsis = "…"

// shorten returns a text that a comment or a log prefix can have: without quotes and control characters, of limited length.
func shorten(text string) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case r == '"':
			return '\''
		case unicode.IsControl(r):
			return ' '
		}
		return r
	}, text)
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText-len(ellipsis)], "") + ellipsis
	}
	return text
}
