package nft

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// Ruleset is the decoded ruleset of a network namespace, with the tables of all
// software, as far as it decides which packets pass.
type Ruleset struct {
	Chains []*Chain
	Sets   map[string]*Set // by SetName
}

// Chain is a chain. A base chain has a hook.
type Chain struct {
	Family, Table, Name string
	Type, Hook          string // "filter", "forward"; "": not a base chain
	Priority            int
	Drop                bool // policy drop
	Dormant             bool // its table is dormant
	Rules               []Rule
}

// Rule is a rule as the steps that the kernel takes, in order.
type Rule struct {
	Handle  uint64
	Comment string
	Steps   []Step
	Counter *Counter // nil: the rule has none
}

// Counter has the packets and bytes that a rule has counted.
type Counter struct{ Packets, Bytes uint64 }

// Step is one expression of a rule: a comparison or a verdict.
type Step struct {
	// Field is the compared field as nft(8) writes it: "ip saddr", "iifname", "ct state".
	// It is UnknownField for other values, and "" for a step that compares nothing.
	Field string
	Op    int    // CmpEqual and so on
	Mask  []byte // applied to the field first; nil: none
	Value []byte
	Set   string // SetName of a set that is searched instead of comparing with Value
	Not   bool   // the value must not be in the set
	Map   bool   // the set is a map that returns the verdict

	Verdict string // "accept", "drop", "jump", "goto", "return", "nat", "queue"
	Chain   string // target of jump and goto
}

// The values of Step.Op, linux/netfilter/nf_tables.h.
const (
	CmpEqual = iota
	CmpNotEqual
	CmpLess
	CmpLessEqual
	CmpGreater
	CmpGreaterEqual
)

// Set is a set, or a map to verdicts.
type Set struct {
	Intervals bool
	Elements  []SetElement
	Unknown   bool // the set is too large, or of a kind that is not decoded
}

// SetElement is a key, or the exclusive end of an interval.
type SetElement struct {
	Key     []byte
	End     bool
	Verdict string
	Chain   string
}

// SetName returns the key of a set in Ruleset.Sets.
func SetName(family, table, name string) string { return family + " " + table + " " + name }

// Base returns the base chains of a hook that packets of a family ("ip", "ip6") pass.
func (r *Ruleset) Base(hook, family string) (out []*Chain) {
	for _, c := range r.Chains {
		if c.Hook == hook && (c.Family == family || c.Family == "inet") && !c.Dormant {
			out = append(out, c)
		}
	}
	return out
}

// Chain returns the chain of a name in the table of another chain, or nil.
func (r *Ruleset) Chain(of *Chain, name string) *Chain {
	for _, c := range r.Chains {
		if c.Family == of.Family && c.Table == of.Table && c.Name == name {
			return c
		}
	}
	return nil
}

// ParseChain decodes a message about a chain.
func ParseChain(m []byte) *Chain {
	p := m[4:]
	c := &Chain{Family: FamilyName(m[0]), Table: netlink.Text(netlink.Attr(p, unix.NFTA_CHAIN_TABLE)), Name: netlink.Text(netlink.Attr(p, unix.NFTA_CHAIN_NAME))}
	hook := netlink.Attr(p, unix.NFTA_CHAIN_HOOK)
	if hook == nil {
		return c
	}
	c.Type = netlink.Text(netlink.Attr(p, unix.NFTA_CHAIN_TYPE))
	c.Priority = int(int32(netlink.Uint32BE(netlink.Attr(hook, unix.NFTA_HOOK_PRIORITY))))
	names := hookNames(c.Family)
	if n := netlink.Uint32BE(netlink.Attr(hook, unix.NFTA_HOOK_HOOKNUM)); int(n) < len(names) {
		c.Hook = names[n]
	}
	policy := netlink.Attr(p, unix.NFTA_CHAIN_POLICY)
	c.Drop = len(policy) == 4 && netlink.Uint32BE(policy) == dropCode
	return c
}

// ParseRule decodes the attributes of a rule of a chain.
func ParseRule(p []byte, c *Chain) Rule {
	r := Rule{Comment: ParseComment(netlink.Attr(p, unix.NFTA_RULE_USERDATA))}
	if h := netlink.Attr(p, unix.NFTA_RULE_HANDLE); len(h) == 8 {
		r.Handle = binary.BigEndian.Uint64(h)
	}
	d := &decoder{chain: c, regs: map[uint32]register{}}
	netlink.EachAttr(netlink.Attr(p, unix.NFTA_RULE_EXPRESSIONS), func(_ uint16, expr []byte) {
		d.expr(netlink.Text(netlink.Attr(expr, unix.NFTA_EXPR_NAME)), netlink.Attr(expr, unix.NFTA_EXPR_DATA))
	})
	r.Steps, r.Counter = d.steps, d.counter
	return r
}

// ParseSetElement decodes the attributes of one element.
func ParseSetElement(p []byte) SetElement {
	x := SetElement{
		Key: netlink.Attr(netlink.Attr(p, unix.NFTA_SET_ELEM_KEY), unix.NFTA_DATA_VALUE),
		End: netlink.Uint32BE(netlink.Attr(p, unix.NFTA_SET_ELEM_FLAGS))&unix.NFT_SET_ELEM_INTERVAL_END != 0,
	}
	if v := netlink.Attr(netlink.Attr(p, unix.NFTA_SET_ELEM_DATA), unix.NFTA_DATA_VERDICT); v != nil {
		x.Verdict, x.Chain = parseVerdict(v)
	}
	return x
}

// SetFlagConcat marks a set of concatenations, linux/netfilter/nf_tables.h.
const SetFlagConcat = 0x80
