package kernel

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A rule is written here as nft(8) prints it, and compiled to the kernel's
// expressions. The grammar is the part that Fairlead uses:
//
//	meta nfproto ipv4|ipv6 | FIELD [!=] VALUE | FIELD [. FIELD]... [!=] @SET | ct status dnat |
//	dnat ip|ip6 to FIELD [. FIELD]... map @MAP | masquerade | meta mark set NUMBER |
//	jump CHAIN | goto CHAIN | return | accept | drop | counter
//
// Source: nft(8); linux/netfilter/nf_tables.h; kernel 5.14.
type compiler struct {
	words  []string
	out    buf  // NFTA_RULE_EXPRESSIONS: a list of elements
	inet   bool // a field of one family checks the family first
	family byte // the family checked so far
}

const ( // registers: 1 holds 16 bytes; 8 and on are its words of 4
	regVerdict = 0
	reg1       = 1
	regWords   = 8
)

// field is something of a packet that can be compared.
type field struct {
	typ    string
	family byte // AF_INET or AF_INET6: meaningful in that family only
	load   func(reg uint32) (name string, attrs func(*buf))
}

func payload(base, offset, length uint32) func(uint32) (string, func(*buf)) {
	return func(reg uint32) (string, func(*buf)) {
		return "payload", func(b *buf) {
			b.be32(unix.NFTA_PAYLOAD_DREG, reg)
			b.be32(unix.NFTA_PAYLOAD_BASE, base)
			b.be32(unix.NFTA_PAYLOAD_OFFSET, offset)
			b.be32(unix.NFTA_PAYLOAD_LEN, length)
		}
	}
}

func meta(key uint32) func(uint32) (string, func(*buf)) {
	return func(reg uint32) (string, func(*buf)) {
		return "meta", func(b *buf) {
			b.be32(unix.NFTA_META_DREG, reg)
			b.be32(unix.NFTA_META_KEY, key)
		}
	}
}

func fieldByName(name string) (field, bool) {
	const link, network, transport = unix.NFT_PAYLOAD_LL_HEADER, unix.NFT_PAYLOAD_NETWORK_HEADER, unix.NFT_PAYLOAD_TRANSPORT_HEADER
	switch name {
	case "ip saddr":
		return field{"ipv4_addr", unix.AF_INET, payload(network, 12, 4)}, true
	case "ip daddr":
		return field{"ipv4_addr", unix.AF_INET, payload(network, 16, 4)}, true
	case "ip6 saddr":
		return field{"ipv6_addr", unix.AF_INET6, payload(network, 8, 16)}, true
	case "ip6 daddr":
		return field{"ipv6_addr", unix.AF_INET6, payload(network, 24, 16)}, true
	case "ether saddr":
		return field{"ether_addr", 0, payload(link, 6, 6)}, true
	case "th dport":
		return field{"inet_service", 0, payload(transport, 2, 2)}, true
	case "meta l4proto":
		return field{"inet_proto", 0, meta(unix.NFT_META_L4PROTO)}, true
	case "iifname":
		return field{"ifname", 0, meta(unix.NFT_META_IIFNAME)}, true
	case "oifname":
		return field{"ifname", 0, meta(unix.NFT_META_OIFNAME)}, true
	case "meta mark":
		return field{"mark", 0, meta(unix.NFT_META_MARK)}, true
	}
	return field{}, false
}

// compileRule returns the expressions of a rule.
func compileRule(tableFamily byte, text string) ([]byte, error) {
	c := &compiler{words: strings.Fields(text), inet: tableFamily == nfprotoInet}
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

func (c *compiler) expr(name string, attrs func(*buf)) {
	c.out.nest(unix.NFTA_LIST_ELEM, func(b *buf) {
		b.str(unix.NFTA_EXPR_NAME, name)
		b.nest(unix.NFTA_EXPR_DATA, attrs)
	})
}

func (c *compiler) statement() error {
	switch {
	case c.accept("meta", "nfproto", "ipv4"):
		c.of(unix.AF_INET)
	case c.accept("meta", "nfproto", "ipv6"):
		c.of(unix.AF_INET6)
	case c.accept("ct", "status", "dnat"):
		c.ctStatusDNAT()
	case c.accept("fib", "daddr", "type", "local"):
		c.fibLocal()
	case c.accept("fib", "saddr", "type", "local"):
		c.fibType(unix.NFTA_FIB_F_SADDR)
	case c.accept("meta", "mark", "set"):
		return c.markSet(c.next())
	case c.accept("dnat"):
		return c.dnat(c.next())
	case c.accept("masquerade"):
		c.expr("masq", func(*buf) {})
	case c.accept("counter"):
		c.expr("counter", func(*buf) {})
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

func (c *compiler) verdict(code int32, chain string) {
	c.expr("immediate", func(b *buf) {
		b.be32(unix.NFTA_IMMEDIATE_DREG, regVerdict)
		b.nest(unix.NFTA_IMMEDIATE_DATA, func(b *buf) {
			b.nest(unix.NFTA_DATA_VERDICT, func(b *buf) {
				b.be32(unix.NFTA_VERDICT_CODE, uint32(code))
				if chain != "" {
					b.str(unix.NFTA_VERDICT_CHAIN, chain)
				}
			})
		})
	})
}

func (c *compiler) cmp(op uint32, v []byte) {
	c.expr("cmp", func(b *buf) {
		b.be32(unix.NFTA_CMP_SREG, reg1)
		b.be32(unix.NFTA_CMP_OP, op)
		b.nest(unix.NFTA_CMP_DATA, func(b *buf) { b.bytes(unix.NFTA_DATA_VALUE, v) })
	})
}

func (c *compiler) mask(mask []byte) {
	c.expr("bitwise", func(b *buf) {
		b.be32(unix.NFTA_BITWISE_SREG, reg1)
		b.be32(unix.NFTA_BITWISE_DREG, reg1)
		b.be32(unix.NFTA_BITWISE_LEN, uint32(len(mask)))
		b.nest(unix.NFTA_BITWISE_MASK, func(b *buf) { b.bytes(unix.NFTA_DATA_VALUE, mask) })
		b.nest(unix.NFTA_BITWISE_XOR, func(b *buf) { b.bytes(unix.NFTA_DATA_VALUE, make([]byte, len(mask))) })
	})
}

// of checks the packet's family before a field of one family is read in a
// table of both.
func (c *compiler) of(family byte) {
	if family == 0 || !c.inet || c.family == family {
		return
	}
	c.family = family
	name, attrs := meta(unix.NFT_META_NFPROTO)(reg1)
	c.expr(name, attrs)
	c.cmp(unix.NFT_CMP_EQ, []byte{family})
}

func (c *compiler) ctStatusDNAT() {
	c.expr("ct", func(b *buf) {
		b.be32(unix.NFTA_CT_DREG, reg1)
		b.be32(unix.NFTA_CT_KEY, unix.NFT_CT_STATUS)
	})
	c.mask(binary.NativeEndian.AppendUint32(nil, 1<<5)) // IPS_DST_NAT
	c.cmp(unix.NFT_CMP_NEQ, make([]byte, 4))
}

func (c *compiler) fibLocal() { c.fibType(unix.NFTA_FIB_F_DADDR) }

func (c *compiler) fibType(flags uint32) {
	c.expr("fib", func(b *buf) {
		b.be32(unix.NFTA_FIB_DREG, reg1)
		b.be32(unix.NFTA_FIB_RESULT, unix.NFT_FIB_RESULT_ADDRTYPE)
		b.be32(unix.NFTA_FIB_FLAGS, flags)
	})
	c.cmp(unix.NFT_CMP_EQ, binary.NativeEndian.AppendUint32(nil, unix.RTN_LOCAL))
}

func (c *compiler) markSet(word string) error {
	v, err := strconv.ParseUint(word, 0, 32)
	if err != nil {
		return err
	}
	c.expr("immediate", func(b *buf) {
		b.be32(unix.NFTA_IMMEDIATE_DREG, reg1)
		b.nest(unix.NFTA_IMMEDIATE_DATA, func(b *buf) {
			b.bytes(unix.NFTA_DATA_VALUE, binary.NativeEndian.AppendUint32(nil, uint32(v)))
		})
	})
	c.expr("meta", func(b *buf) {
		b.be32(unix.NFTA_META_KEY, unix.NFT_META_MARK)
		b.be32(unix.NFTA_META_SREG, reg1)
	})
	return nil
}

// fields reads "ip daddr . meta l4proto" and loads each into the registers.
func (c *compiler) fields() (nftTypes, error) {
	var types nftTypes
	var list []field
	for {
		name := c.next()
		f, ok := fieldByName(name)
		if !ok {
			name += " " + c.next()
			if f, ok = fieldByName(name); !ok {
				return nil, fmt.Errorf("unknown word %q", name)
			}
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
	}
	reg := uint32(reg1)
	if len(list) > 1 {
		reg = regWords
	}
	for i, f := range list {
		name, attrs := f.load(reg)
		c.expr(name, attrs)
		reg += uint32(words(types[i].size))
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

func (c *compiler) lookup(set string, not, concat bool) {
	c.expr("lookup", func(b *buf) {
		b.str(unix.NFTA_LOOKUP_SET, set)
		b.be32(unix.NFTA_LOOKUP_SREG, sourceReg(concat))
		if not {
			b.be32(unix.NFTA_LOOKUP_FLAGS, unix.NFT_LOOKUP_F_INV)
		}
	})
}

func sourceReg(concat bool) uint32 {
	if concat {
		return regWords
	}
	return reg1
}

func (c *compiler) compare(t nftType, word string, not bool) error {
	op := uint32(unix.NFT_CMP_EQ)
	if not {
		op = unix.NFT_CMP_NEQ
	}
	if p, err := netip.ParsePrefix(word); err == nil {
		c.mask(prefixMask(p))
		c.cmp(op, p.Masked().Addr().AsSlice())
		return nil
	}
	v, err := t.value(word)
	if err != nil {
		return err
	}
	c.cmp(op, v)
	return nil
}

func prefixMask(p netip.Prefix) []byte {
	m := make([]byte, len(p.Addr().AsSlice()))
	for i := range p.Bits() {
		m[i/8] |= 0x80 >> (i % 8)
	}
	return m
}

// dnat reads "ip to FIELDS map @MAP": the map gives address and port.
func (c *compiler) dnat(word string) error {
	fam, addrWords := uint32(unix.AF_INET), uint32(1)
	switch word {
	case "ip":
	case "ip6":
		fam, addrWords = unix.AF_INET6, 4
	default:
		return fmt.Errorf("dnat to %q: want ip or ip6", word)
	}
	if !c.accept("to") {
		return fmt.Errorf("dnat without \"to\"")
	}
	c.of(byte(fam))
	types, err := c.fields()
	if err != nil {
		return err
	}
	if !c.accept("map") {
		return fmt.Errorf("dnat without a map")
	}
	c.expr("lookup", func(b *buf) {
		b.str(unix.NFTA_LOOKUP_SET, strings.TrimPrefix(c.next(), "@"))
		b.be32(unix.NFTA_LOOKUP_SREG, sourceReg(len(types) > 1))
		b.be32(unix.NFTA_LOOKUP_DREG, regWords)
	})
	c.expr("nat", func(b *buf) {
		b.be32(unix.NFTA_NAT_TYPE, unix.NFT_NAT_DNAT)
		b.be32(unix.NFTA_NAT_FAMILY, fam)
		b.be32(unix.NFTA_NAT_REG_ADDR_MIN, regWords)
		b.be32(unix.NFTA_NAT_REG_PROTO_MIN, regWords+addrWords)
	})
	return nil
}
