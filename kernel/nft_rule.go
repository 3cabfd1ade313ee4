package kernel

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// A rule is written here as nft(8) prints it, and compiled to the kernel's
// expressions. The grammar is the part that Fairlead uses:
//
//	meta nfproto ipv4|ipv6 | meta protocol ip|ip6|arp | fib daddr type local | ip frag-off & 16383 != 0 | exthdr frag exists | FIELD [!=] VALUE | FIELD [. FIELD]... [!=] @SET | ct status dnat | ct state established,related |
//	dnat ip|ip6 to FIELD [. FIELD]... map @MAP | masquerade | meta mark set NUMBER |
//	tcp flags syn / syn,rst | tcp option maxseg size set rt mtu |
//	jump CHAIN | goto CHAIN | return | accept | drop | counter
//
// Source: nft(8); linux/netfilter/nf_tables.h; kernel 5.14.
type compiler struct {
	words  []string
	out    netlink.Buffer // NFTA_RULE_EXPRESSIONS: a list of elements
	table  byte           // the table's family: in one of several, a field of one checks the packet's first
	family byte           // the family checked so far
	over   string         // the protocol above that checked so far
}

const ( // registers: 1 holds 16 bytes; 8 and on are its words of 4
	regVerdict = 0
	reg1       = 1
	regWords   = 8
)

// compileRule returns the expressions of a rule.
func compileRule(tableFamily byte, text string) ([]byte, error) {
	c := &compiler{words: strings.Fields(text), table: tableFamily}
	for len(c.words) > 0 {
		if err := c.statement(); err != nil {
			return nil, fmt.Errorf("rule %q: %w", text, err)
		}
	}
	return c.out, nil
}

func (c *compiler) next() string {
	if len(c.words) == 0 {
		return ""
	}
	w := c.words[0]
	c.words = c.words[1:]
	return w
}

// accept takes a phrase if it comes next.
func (c *compiler) accept(phrase ...string) bool {
	if len(c.words) < len(phrase) {
		return false
	}
	for i, w := range phrase {
		if c.words[i] != w {
			return false
		}
	}
	c.words = c.words[len(phrase):]
	return true
}

func (c *compiler) statement() error {
	switch {
	case c.accept("meta", "nfproto", "ipv4"):
		c.of(unix.AF_INET)
	case c.accept("meta", "nfproto", "ipv6"):
		c.of(unix.AF_INET6)
	case c.accept("meta", "protocol", "ip"):
		c.protocol(unix.AF_INET)
	case c.accept("meta", "protocol", "ip6"):
		c.protocol(unix.AF_INET6)
	case c.accept("meta", "protocol", "arp"):
		c.protocol(nfprotoARP)
	case c.accept("ct", "status", "dnat"):
		c.ctStatusDNAT()
	case c.accept("ct", "state", "established,related"):
		c.ctStateKnown()
	case c.accept("fib", "daddr", "type", "local"):
		c.fibLocal()
	case c.accept("ip", "frag-off", "&", "16383", "!=", "0"):
		c.fragment4()
	case c.accept("exthdr", "frag", "exists"):
		c.fragment6()
	case c.accept("tcp", "flags", "syn", "/", "syn,rst"):
		return c.tcpSyn()
	case c.accept("tcp", "option", "maxseg", "size", "set", "rt", "mtu"):
		return c.clampMSS()
	case c.accept("meta", "mark", "set"):
		return c.markSet(c.next())
	case c.accept("dnat"):
		return c.dnat(c.next())
	case c.accept("masquerade"):
		c.expr("masq", func(*netlink.Buffer) {})
	case c.accept("counter"):
		c.expr("counter", func(*netlink.Buffer) {})
	case c.accept("jump"):
		c.verdict(unix.NFT_JUMP, c.next())
	case c.accept("goto"):
		c.verdict(unix.NFT_GOTO, c.next())
	case c.accept("return"):
		c.verdict(unix.NFT_RETURN, "")
	case c.accept("accept"):
		c.verdict(nfAccept, "")
	case c.accept("drop"):
		c.verdict(nfDrop, "")
	default:
		return c.match()
	}
	return nil
}

const nfDrop, nfAccept = 0, 1 // linux/netfilter.h

// fields reads "ip daddr . meta l4proto" and loads each into the registers.
func (c *compiler) fields() (nftTypes, error) {
	var types nftTypes
	var list []field
	for {
		name := c.next()
		f, ok := fieldByName(name)
		for range 2 { // a name has three words at most
			if !ok {
				name += " " + c.next()
				f, ok = fieldByName(name)
			}
		}
		if !ok {
			return nil, fmt.Errorf("unknown word %q", name)
		}
		t, err := nftTypeByName(f.typ)
		if err != nil {
			return nil, err
		}
		types, list = append(types, t), append(list, f)
		if !c.accept(".") {
			break
		}
	}
	for _, f := range list {
		c.of(f.family)
		if err := c.above(f.above); err != nil {
			return nil, err
		}
	}
	reg := uint32(reg1)
	if len(list) > 1 {
		reg = regWords
	}
	for i, f := range list {
		name, attrs := f.load(reg)
		c.expr(name, attrs)
		reg += uint32(wordCount(types[i].size))
	}
	return types, nil
}

func (c *compiler) match() error {
	types, err := c.fields()
	if err != nil {
		return err
	}
	not := c.accept("!=")
	word := c.next()
	if set, ok := strings.CutPrefix(word, "@"); ok {
		c.lookup(set, not, len(types) > 1)
		return nil
	}
	if len(types) != 1 {
		return fmt.Errorf("a concatenation is compared with a set, not with %q", word)
	}
	return c.compare(types[0], word, not)
}
