package kernel

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

func (c *compiler) expr(name string, attrs func(*netlink.Buffer)) {
	c.out.Nest(unix.NFTA_LIST_ELEM, func(b *netlink.Buffer) {
		b.String(unix.NFTA_EXPR_NAME, name)
		b.Nest(unix.NFTA_EXPR_DATA, attrs)
	})
}

func (c *compiler) verdict(code int32, chain string) {
	c.expr("immediate", func(b *netlink.Buffer) {
		b.Uint32BE(unix.NFTA_IMMEDIATE_DREG, regVerdict)
		b.Nest(unix.NFTA_IMMEDIATE_DATA, func(b *netlink.Buffer) {
			b.Nest(unix.NFTA_DATA_VERDICT, func(b *netlink.Buffer) {
				b.Uint32BE(unix.NFTA_VERDICT_CODE, uint32(code))
				if chain != "" {
					b.String(unix.NFTA_VERDICT_CHAIN, chain)
				}
			})
		})
	})
}

func (c *compiler) cmp(op uint32, v []byte) {
	c.expr("cmp", func(b *netlink.Buffer) {
		b.Uint32BE(unix.NFTA_CMP_SREG, reg1)
		b.Uint32BE(unix.NFTA_CMP_OP, op)
		b.Nest(unix.NFTA_CMP_DATA, func(b *netlink.Buffer) { b.Bytes(unix.NFTA_DATA_VALUE, v) })
	})
}

func (c *compiler) mask(mask []byte) {
	c.expr("bitwise", func(b *netlink.Buffer) {
		b.Uint32BE(unix.NFTA_BITWISE_SREG, reg1)
		b.Uint32BE(unix.NFTA_BITWISE_DREG, reg1)
		b.Uint32BE(unix.NFTA_BITWISE_LEN, uint32(len(mask)))
		b.Nest(unix.NFTA_BITWISE_MASK, func(b *netlink.Buffer) { b.Bytes(unix.NFTA_DATA_VALUE, mask) })
		b.Nest(unix.NFTA_BITWISE_XOR, func(b *netlink.Buffer) { b.Bytes(unix.NFTA_DATA_VALUE, make([]byte, len(mask))) })
	})
}

// of checks the packet's family before a field of one family is read in a
// table of several.
func (c *compiler) of(family byte) {
	switch {
	case family == 0 || c.family == family:
	case c.table == nfprotoBridge:
		c.protocol(family)
	case c.table == nfprotoInet:
		c.family = family
		name, attrs := meta(unix.NFT_META_NFPROTO)(reg1)
		c.expr(name, attrs)
		c.cmp(unix.NFT_CMP_EQ, []byte{family})
	}
}

// protocol checks what a frame carries. It is not the number in the frame's header:
// that may be a VLAN tag's.
func (c *compiler) protocol(family byte) {
	c.family = family
	number := map[byte]uint16{unix.AF_INET: unix.ETH_P_IP, unix.AF_INET6: unix.ETH_P_IPV6, nfprotoARP: unix.ETH_P_ARP}[family]
	name, attrs := meta(unix.NFT_META_PROTOCOL)(reg1)
	c.expr(name, attrs)
	c.cmp(unix.NFT_CMP_EQ, binary.BigEndian.AppendUint16(nil, number))
}

// above checks the protocol above IP before a field of one is read, or the type of link.
func (c *compiler) above(name string) error {
	switch {
	case name == "ether":
		if c.table == nfprotoInet {
			expr, attrs := meta(unix.NFT_META_IIFTYPE)(reg1)
			c.expr(expr, attrs)
			c.cmp(unix.NFT_CMP_EQ, binary.NativeEndian.AppendUint16(nil, unix.ARPHRD_ETHER))
		}
		return nil
	case name == "" || c.over == name:
		return nil
	}
	c.over = name
	number, err := protoNumber(name)
	if err != nil {
		return err
	}
	expr, attrs := meta(unix.NFT_META_L4PROTO)(reg1)
	c.expr(expr, attrs)
	c.cmp(unix.NFT_CMP_EQ, []byte{number})
	return nil
}

func (c *compiler) ctStatusDNAT() {
	c.expr("ct", func(b *netlink.Buffer) {
		b.Uint32BE(unix.NFTA_CT_DREG, reg1)
		b.Uint32BE(unix.NFTA_CT_KEY, unix.NFT_CT_STATUS)
	})
	c.mask(binary.NativeEndian.AppendUint32(nil, 1<<5)) // IPS_DST_NAT
	c.cmp(unix.NFT_CMP_NEQ, make([]byte, 4))
}

// ctStateKnown is bit 1, established, or bit 2, related.
func (c *compiler) ctStateKnown() {
	c.expr("ct", func(b *netlink.Buffer) {
		b.Uint32BE(unix.NFTA_CT_DREG, reg1)
		b.Uint32BE(unix.NFTA_CT_KEY, unix.NFT_CT_STATE)
	})
	c.mask(binary.NativeEndian.AppendUint32(nil, 1<<1|1<<2))
	c.cmp(unix.NFT_CMP_NEQ, make([]byte, 4))
}

func (c *compiler) fibLocal() {
	c.expr("fib", func(b *netlink.Buffer) {
		b.Uint32BE(unix.NFTA_FIB_DREG, reg1)
		b.Uint32BE(unix.NFTA_FIB_RESULT, unix.NFT_FIB_RESULT_ADDRTYPE)
		b.Uint32BE(unix.NFTA_FIB_FLAGS, unix.NFTA_FIB_F_DADDR)
	})
	c.cmp(unix.NFT_CMP_EQ, binary.NativeEndian.AppendUint32(nil, unix.RTN_LOCAL))
}

// fragment4 is a packet with an offset or the flag that more follows: RFC 791, section 3.1.
func (c *compiler) fragment4() {
	c.of(unix.AF_INET)
	name, attrs := payload(unix.NFT_PAYLOAD_NETWORK_HEADER, 6, 2)(reg1)
	c.expr(name, attrs)
	c.mask([]byte{0x3f, 0xff})
	c.cmp(unix.NFT_CMP_NEQ, make([]byte, 2))
}

// fragment6 is a packet with the extension header of fragments: RFC 8200, section 4.5.
func (c *compiler) fragment6() {
	c.of(unix.AF_INET6)
	c.expr("exthdr", func(b *netlink.Buffer) {
		b.Uint32BE(unix.NFTA_EXTHDR_DREG, reg1)
		b.Uint8(unix.NFTA_EXTHDR_TYPE, unix.IPPROTO_FRAGMENT)
		b.Uint32BE(unix.NFTA_EXTHDR_OFFSET, 0)
		b.Uint32BE(unix.NFTA_EXTHDR_LEN, 1)
		b.Uint32BE(unix.NFTA_EXTHDR_FLAGS, nftExthdrPresent)
	})
	c.cmp(unix.NFT_CMP_EQ, []byte{1})
}

const nftExthdrPresent = 1 // NFT_EXTHDR_F_PRESENT, linux/netfilter/nf_tables.h

func (c *compiler) markSet(word string) error {
	v, err := strconv.ParseUint(word, 0, 32)
	if err != nil {
		return err
	}
	c.expr("immediate", func(b *netlink.Buffer) {
		b.Uint32BE(unix.NFTA_IMMEDIATE_DREG, reg1)
		b.Nest(unix.NFTA_IMMEDIATE_DATA, func(b *netlink.Buffer) {
			b.Bytes(unix.NFTA_DATA_VALUE, binary.NativeEndian.AppendUint32(nil, uint32(v)))
		})
	})
	c.expr("meta", func(b *netlink.Buffer) {
		b.Uint32BE(unix.NFTA_META_KEY, unix.NFT_META_MARK)
		b.Uint32BE(unix.NFTA_META_SREG, reg1)
	})
	return nil
}

func (c *compiler) lookup(set string, not, concat bool) {
	c.expr("lookup", func(b *netlink.Buffer) {
		b.String(unix.NFTA_LOOKUP_SET, set)
		b.Uint32BE(unix.NFTA_LOOKUP_SREG, sourceReg(concat))
		if not {
			b.Uint32BE(unix.NFTA_LOOKUP_FLAGS, unix.NFT_LOOKUP_F_INV)
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
	c.expr("lookup", func(b *netlink.Buffer) {
		b.String(unix.NFTA_LOOKUP_SET, strings.TrimPrefix(c.next(), "@"))
		b.Uint32BE(unix.NFTA_LOOKUP_SREG, sourceReg(len(types) > 1))
		b.Uint32BE(unix.NFTA_LOOKUP_DREG, regWords)
	})
	c.expr("nat", func(b *netlink.Buffer) {
		b.Uint32BE(unix.NFTA_NAT_TYPE, unix.NFT_NAT_DNAT)
		b.Uint32BE(unix.NFTA_NAT_FAMILY, fam)
		b.Uint32BE(unix.NFTA_NAT_REG_ADDR_MIN, regWords)
		b.Uint32BE(unix.NFTA_NAT_REG_PROTO_MIN, regWords+addrWords)
	})
	return nil
}
