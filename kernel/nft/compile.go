package nft

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// compiler turns the text of a rule, as nft(8) prints it, into the kernel's expressions.
// It knows the part of the grammar that Fairlead uses:
//
//	meta nfproto ipv4|ipv6 | meta protocol ip|ip6|arp | fib saddr|daddr type local |
//	ip frag-off & 16383 != 0 | exthdr frag exists |
//	FIELD [!=] VALUE | FIELD [. FIELD]... [!=] @SET | FIELD [. FIELD]... vmap @MAP |
//	ct status dnat | ct state established,related |
//	tcp flags syn / syn,rst | tcp option maxseg size set rt mtu |
//	dnat ip|ip6 to FIELD [. FIELD]... map @MAP | masquerade | meta mark set NUMBER |
//	jump CHAIN | goto CHAIN | return | accept | drop | counter | log [prefix TEXT] group NUMBER |
//	limit rate [over] NUMBER/second burst NUMBER packets
type compiler struct {
	words  []string
	out    netlink.Buffer // NFTA_RULE_EXPRESSIONS: a list of elements
	table  byte           // family of the table
	family byte           // family that the rule has checked so far; 0: none
	over   string         // protocol above IP that the rule has checked so far
}

// Registers: register 1 holds 16 bytes; registers 8 and up are the 4-byte words.
const (
	verdictReg = 0
	reg1       = 1
	firstWord  = 8
)

// Compile returns the expressions of a rule for a table of a family.
func Compile(family byte, text string) ([]byte, error) {
	c := &compiler{words: splitWords(text), table: family, out: make(netlink.Buffer, 0, 512)}
	for len(c.words) > 0 {
		if err := c.statement(); err != nil {
			return nil, fmt.Errorf("rule %q: %w", text, err)
		}
	}
	return c.out, nil
}

// splitWords splits a rule at spaces. Text in quotes, with its quotes, is one word.
func splitWords(text string) (out []string) {
	for i, part := range strings.Split(text, `"`) {
		if i%2 == 1 {
			out = append(out, `"`+part+`"`)
			continue
		}
		out = append(out, strings.Fields(part)...)
	}
	return out
}

func (c *compiler) next() string {
	if len(c.words) == 0 {
		return ""
	}
	w := c.words[0]
	c.words = c.words[1:]
	return w
}

// accept consumes a phrase if it comes next.
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
		c.checkFamily(unix.AF_INET)
	case c.accept("meta", "nfproto", "ipv6"):
		c.checkFamily(unix.AF_INET6)
	case c.accept("meta", "protocol", "ip"):
		c.checkEtherType(unix.AF_INET)
	case c.accept("meta", "protocol", "ip6"):
		c.checkEtherType(unix.AF_INET6)
	case c.accept("meta", "protocol", "arp"):
		c.checkEtherType(ARP)
	case c.accept("ct", "status", "dnat"):
		c.ctStatusDNAT()
	case c.accept("ct", "state", "established,related"):
		c.ctStateKnown()
	case c.accept("fib", "saddr", "type", "local"):
		c.fibLocal("fib saddr type")
	case c.accept("fib", "daddr", "type", "local"):
		c.fibLocal("fib daddr type")
	case c.accept("ip", "frag-off", "&", "16383", "!=", "0"):
		c.fragment4()
	case c.accept("exthdr", "frag", "exists"):
		c.fragment6()
	case c.accept("tcp", "flags", "syn", "/", "syn,rst"):
		return c.tcpSYN()
	case c.accept("tcp", "option", "maxseg", "size", "set", "rt", "mtu"):
		return c.clampMSS()
	case c.accept("meta", "mark", "set"):
		return c.setMark(c.next())
	case c.accept("dnat"):
		return c.dnat(c.next())
	case c.accept("masquerade"):
		c.expr("masq", func(*netlink.Buffer) {})
	case c.accept("counter"):
		c.expr("counter", func(*netlink.Buffer) {})
	case c.accept("log"):
		return c.log()
	case c.accept("limit", "rate"):
		return c.limit()
	default:
		if code, ok := verdictByName(c.words[0]); ok {
			c.verdict(code)
			return nil
		}
		return c.match()
	}
	return nil
}

// loadFields reads "ip daddr . meta l4proto" and loads each field into the registers.
func (c *compiler) loadFields() (Types, error) {
	var types Types
	var list []*field
	for {
		name := c.next()
		f := fieldByName(name)
		for range 2 { // a name has up to three words
			if f == nil {
				name += " " + c.next()
				f = fieldByName(name)
			}
		}
		if f == nil {
			return nil, fmt.Errorf("unknown word %q", name)
		}
		t, err := dataTypeByName(f.typ)
		if err != nil {
			return nil, err
		}
		types, list = append(types, t), append(list, f)
		if !c.accept(".") {
			break
		}
	}
	for _, f := range list {
		c.checkFamily(f.family)
		if err := c.checkAbove(f.above); err != nil {
			return nil, err
		}
	}
	reg := sourceReg(len(list) > 1)
	for i, f := range list {
		c.load(f, reg)
		reg += uint32(wordCount(types[i].size))
	}
	return types, nil
}

func sourceReg(concatenation bool) uint32 {
	if concatenation {
		return firstWord
	}
	return reg1
}

// match compares fields with a value or with the elements of a set, or looks up their verdict in a map.
func (c *compiler) match() error {
	types, err := c.loadFields()
	if err != nil {
		return err
	}
	if c.accept("vmap") {
		return c.verdictMap(len(types) > 1)
	}
	not := c.accept("!=")
	word := c.next()
	if set, ok := strings.CutPrefix(word, "@"); ok {
		c.lookup(set, not, len(types) > 1)
		return nil
	}
	if len(types) != 1 {
		return fmt.Errorf("%q is not a set: a concatenation can only be compared with a set", word)
	}
	return c.compare(types[0], word, not)
}

// dnat reads "ip to FIELDS map @MAP". The map returns the address and the port.
func (c *compiler) dnat(word string) error {
	family, addrWords := uint32(unix.AF_INET), uint32(1)
	switch word {
	case "ip":
	case "ip6":
		family, addrWords = unix.AF_INET6, 4
	default:
		return fmt.Errorf("dnat to %q: want ip or ip6", word)
	}
	if !c.accept("to") {
		return fmt.Errorf("dnat without \"to\"")
	}
	c.checkFamily(byte(family))
	types, err := c.loadFields()
	if err != nil {
		return err
	}
	if !c.accept("map") {
		return fmt.Errorf("dnat without a map")
	}
	c.expr("lookup", func(b *netlink.Buffer) {
		b.String(unix.NFTA_LOOKUP_SET, strings.TrimPrefix(c.next(), "@"))
		b.Uint32BE(unix.NFTA_LOOKUP_SREG, sourceReg(len(types) > 1))
		b.Uint32BE(unix.NFTA_LOOKUP_DREG, firstWord)
	})
	c.expr("nat", func(b *netlink.Buffer) {
		b.Uint32BE(unix.NFTA_NAT_TYPE, unix.NFT_NAT_DNAT)
		b.Uint32BE(unix.NFTA_NAT_FAMILY, family)
		b.Uint32BE(unix.NFTA_NAT_REG_ADDR_MIN, firstWord)
		b.Uint32BE(unix.NFTA_NAT_REG_PROTO_MIN, firstWord+addrWords)
	})
	return nil
}
