package kernel

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// Ruleset is the whole of nftables of the host, of everybody's tables, as far as it
// matters for the path of a packet.
type Ruleset struct {
	Chains []*FilterChain
	Sets   map[string]*FilterSet // by family, table and name, see SetName
}

// FilterChain is a chain; a base chain has a hook.
type FilterChain struct {
	Family, Table, Name string
	Type, Hook          string // "filter", "forward"; "" if it is no base chain
	Priority            int
	Drop                bool // its policy
	Dormant             bool // its table is switched off
	Rules               []FilterRule
}

// FilterRule is a rule in the steps in which the kernel takes it.
type FilterRule struct {
	Handle  uint64
	Comment string
	Steps   []Step
}

// Step is one expression of a rule: what it compares, or what it does.
type Step struct {
	// Field is what is compared, in the words of nft(8): "ip saddr", "iifname",
	// "ct state"; "?" is something unknown. "": this step compares nothing.
	Field string
	Op    int    // a comparison: CmpEqual ...
	Mask  []byte // nil: none; of what is loaded
	Value []byte
	Set   string // is looked up in this set instead; see SetName
	Not   bool   // ... and must not be in it
	Map   bool   // ... which says the verdict

	Verdict string // "accept", "drop", "jump", "goto", "return", "nat", "queue"
	Chain   string // of jump and goto
}

// The comparisons, linux/netfilter/nf_tables.h.
const (
	CmpEqual = iota
	CmpNotEqual
	CmpLess
	CmpLessEqual
	CmpGreater
	CmpGreaterEqual
)

// FilterSet is a set, or a map to verdicts.
type FilterSet struct {
	Intervals bool
	Elements  []FilterElement
	Unknown   bool // too large, or of a kind that is not read
}

// FilterElement is a key, or the end of an interval, which is not in it.
type FilterElement struct {
	Key     []byte
	End     bool
	Verdict string
	Chain   string
}

// SetName is the key of Ruleset.Sets.
func SetName(family, table, name string) string { return family + " " + table + " " + name }

// Base are the base chains of a hook that a packet of a family passes ("ip", "ip6").
func (r *Ruleset) Base(hook, family string) (out []*FilterChain) {
	for _, c := range r.Chains {
		if c.Hook == hook && (c.Family == family || c.Family == "inet") && !c.Dormant {
			out = append(out, c)
		}
	}
	return out
}

// Chain finds a chain by name in the table of another.
func (r *Ruleset) Chain(of *FilterChain, name string) *FilterChain {
	for _, c := range r.Chains {
		if c.Family == of.Family && c.Table == of.Table && c.Name == name {
			return c
		}
	}
	return nil
}

// Ruleset lists it, read-only. A host without nftables has an empty one.
func (e *Engine) Ruleset() (*Ruleset, error) {
	r := &Ruleset{Sets: map[string]*FilterSet{}}
	tables, err := e.listAll(unix.NFT_MSG_GETTABLE)
	if err != nil {
		return nil, err
	}
	dormant := map[string]bool{}
	for _, m := range tables {
		dormant[familyName(m[0])+" "+netlink.Text(netlink.Attr(m[4:], unix.NFTA_TABLE_NAME))] = netlink.Uint32BE(netlink.Attr(m[4:], unix.NFTA_TABLE_FLAGS))&1 != 0
	}
	chains, err := e.listAll(unix.NFT_MSG_GETCHAIN)
	if err != nil {
		return nil, err
	}
	byName := map[string]*FilterChain{}
	for _, m := range chains {
		c := parseChain(m)
		c.Dormant = dormant[c.Family+" "+c.Table]
		byName[c.Family+" "+c.Table+" "+c.Name] = c
		r.Chains = append(r.Chains, c)
	}
	rules, err := e.listAll(unix.NFT_MSG_GETRULE)
	if err != nil {
		return nil, err
	}
	for _, m := range rules {
		p := m[4:]
		c := byName[familyName(m[0])+" "+netlink.Text(netlink.Attr(p, unix.NFTA_RULE_TABLE))+" "+netlink.Text(netlink.Attr(p, unix.NFTA_RULE_CHAIN))]
		if c != nil {
			c.Rules = append(c.Rules, parseRule(p, c))
		}
	}
	e.setsOf(r)
	return r, nil
}

// listAll lists what there is of every family; messages are whole.
func (e *Engine) listAll(msg uint16) (out [][]byte, err error) {
	c, err := e.netfilter()
	if err != nil {
		return nil, err
	}
	body := nfgen("")
	body[0] = unix.AF_UNSPEC
	msgs, err := c.Dump(netlink.Request{Type: nftSubsystem | msg, Body: body})
	if err != nil && !netlink.IsAbsent(err) {
		return nil, fmt.Errorf("list nftables: %w", err)
	}
	for _, m := range msgs {
		if len(m) > 4 {
			out = append(out, m)
		}
	}
	return out, nil
}

func familyName(n byte) string {
	switch n {
	case nfprotoInet:
		return "inet"
	case nfprotoBridge:
		return "bridge"
	case nfprotoARP:
		return "arp"
	case unix.AF_INET6:
		return "ip6"
	case unix.AF_INET:
		return "ip"
	}
	return fmt.Sprint(n)
}

func parseChain(m []byte) *FilterChain {
	p := m[4:]
	c := &FilterChain{Family: familyName(m[0]), Table: netlink.Text(netlink.Attr(p, unix.NFTA_CHAIN_TABLE)), Name: netlink.Text(netlink.Attr(p, unix.NFTA_CHAIN_NAME))}
	if hook := netlink.Attr(p, unix.NFTA_CHAIN_HOOK); hook != nil {
		c.Type = netlink.Text(netlink.Attr(p, unix.NFTA_CHAIN_TYPE))
		c.Priority = int(int32(netlink.Uint32BE(netlink.Attr(hook, unix.NFTA_HOOK_PRIORITY))))
		names := hookNames(c.Family)
		if n := netlink.Uint32BE(netlink.Attr(hook, unix.NFTA_HOOK_HOOKNUM)); int(n) < len(names) {
			c.Hook = names[n]
		}
		policy := netlink.Attr(p, unix.NFTA_CHAIN_POLICY)
		c.Drop = len(policy) == 4 && netlink.Uint32BE(policy) == nfPolicyDrop
	}
	return c
}

const manyElements = 4096

// setsOf reads the sets that rules look into, but for ours, which are compared
// element by element where they matter.
func (e *Engine) setsOf(r *Ruleset) {
	for _, c := range r.Chains {
		for _, rule := range c.Rules {
			for _, s := range rule.Steps {
				if s.Set == "" || r.Sets[s.Set] != nil {
					continue
				}
				r.Sets[s.Set] = &FilterSet{Unknown: true}
				if c.Table != Table {
					r.Sets[s.Set] = e.filterSet(c.Family, c.Table, s.Set[len(SetName(c.Family, c.Table, "")):])
				}
			}
		}
	}
}

func (e *Engine) filterSet(family, table, name string) *FilterSet {
	unknown := &FilterSet{Unknown: true}
	c, err := e.netfilter()
	if err != nil {
		return unknown
	}
	b := nfgen(family)
	b.String(unix.NFTA_SET_TABLE, table)
	b.String(unix.NFTA_SET_NAME, name)
	resp, err := e.askNFT(unix.NFT_MSG_GETSET, b)
	if err != nil || len(resp.Messages) == 0 || len(resp.Messages[0]) < 4 {
		return unknown
	}
	flags := netlink.Uint32BE(netlink.Attr(resp.Messages[0][4:], unix.NFTA_SET_FLAGS))
	if flags&nftSetConcat != 0 {
		return unknown
	}
	b = nfgen(family)
	b.String(unix.NFTA_SET_ELEM_LIST_TABLE, table)
	b.String(unix.NFTA_SET_ELEM_LIST_SET, name)
	msgs, err := c.Dump(netlink.Request{Type: nftSubsystem | unix.NFT_MSG_GETSETELEM, Body: b})
	if err != nil {
		return unknown
	}
	out := &FilterSet{Intervals: flags&unix.NFT_SET_INTERVAL != 0}
	for _, m := range msgs {
		if len(m) > 4 {
			netlink.EachAttr(netlink.Attr(m[4:], unix.NFTA_SET_ELEM_LIST_ELEMENTS), func(_ uint16, p []byte) { out.Elements = append(out.Elements, parseFilterElement(p)) })
		}
	}
	if len(out.Elements) > manyElements {
		return unknown
	}
	return out
}

func parseFilterElement(p []byte) FilterElement {
	x := FilterElement{
		Key: netlink.Attr(netlink.Attr(p, unix.NFTA_SET_ELEM_KEY), unix.NFTA_DATA_VALUE),
		End: netlink.Uint32BE(netlink.Attr(p, unix.NFTA_SET_ELEM_FLAGS))&unix.NFT_SET_ELEM_INTERVAL_END != 0,
	}
	if v := netlink.Attr(netlink.Attr(p, unix.NFTA_SET_ELEM_DATA), unix.NFTA_DATA_VERDICT); v != nil {
		x.Verdict, x.Chain = parseVerdict(v)
	}
	return x
}

func parseVerdict(v []byte) (verdict, chain string) {
	switch int32(netlink.Uint32BE(netlink.Attr(v, unix.NFTA_VERDICT_CODE))) {
	case nfDrop:
		verdict = "drop"
	case nfAccept:
		verdict = "accept"
	case unix.NFT_JUMP:
		verdict = "jump"
	case unix.NFT_GOTO:
		verdict = "goto"
	case unix.NFT_RETURN:
		verdict = "return"
	case unix.NFT_CONTINUE:
		verdict = ""
	default:
		verdict = "queue"
	}
	return verdict, netlink.Text(netlink.Attr(v, unix.NFTA_VERDICT_CHAIN))
}

func parseRule(p []byte, c *FilterChain) FilterRule {
	r := FilterRule{Comment: parseComment(netlink.Attr(p, unix.NFTA_RULE_USERDATA))}
	if h := netlink.Attr(p, unix.NFTA_RULE_HANDLE); len(h) == 8 {
		r.Handle = binary.BigEndian.Uint64(h)
	}
	x := &reader{chain: c, regs: map[uint32]register{}}
	netlink.EachAttr(netlink.Attr(p, unix.NFTA_RULE_EXPRESSIONS), func(_ uint16, expr []byte) {
		x.expr(netlink.Text(netlink.Attr(expr, unix.NFTA_EXPR_NAME)), netlink.Attr(expr, unix.NFTA_EXPR_DATA))
	})
	r.Steps = x.steps
	return r
}
