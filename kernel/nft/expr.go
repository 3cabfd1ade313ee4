package nft

import (
	"encoding/binary"
	"errors"
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

func (c *compiler) load(f *field, reg uint32) {
	c.expr(f.load.expr, func(b *netlink.Buffer) { f.load.append(b, reg) })
}

func (c *compiler) loadByName(name string) { c.load(fieldByName(name), reg1) }

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

// verdict consumes a verdict, and the chain that follows jump and goto.
func (c *compiler) verdict(code int32) {
	c.next()
	chain := ""
	if code == unix.NFT_JUMP || code == unix.NFT_GOTO {
		chain = c.next()
	}
	c.expr("immediate", func(b *netlink.Buffer) {
		b.Uint32BE(unix.NFTA_IMMEDIATE_DREG, verdictReg)
		b.Nest(unix.NFTA_IMMEDIATE_DATA, verdict{code, chain}.append)
	})
}

// checkFamily checks the packet's family, in a table of several families, before the rule
// loads a field that only one family has.
func (c *compiler) checkFamily(family byte) {
	switch {
	case family == 0 || c.family == family:
	case c.table == Bridge:
		c.checkEtherType(family)
	case c.table == Inet:
		c.family = family
		c.loadByName("meta nfproto")
		c.cmp(unix.NFT_CMP_EQ, []byte{family})
	}
}

// checkEtherType checks what a frame carries. It does not read the frame's header, which
// may hold the type of a VLAN tag.
func (c *compiler) checkEtherType(family byte) {
	c.family = family
	number := map[byte]uint16{unix.AF_INET: unix.ETH_P_IP, unix.AF_INET6: unix.ETH_P_IPV6, ARP: unix.ETH_P_ARP}[family]
	c.loadByName("meta protocol")
	c.cmp(unix.NFT_CMP_EQ, binary.BigEndian.AppendUint16(nil, number))
}

// checkAbove checks the protocol above IP, or the link type, before the rule loads a field
// that exists only there.
func (c *compiler) checkAbove(name string) error {
	switch {
	case name == "ether":
		if c.table == Inet {
			c.loadByName("iiftype")
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
	c.loadByName("meta l4proto")
	c.cmp(unix.NFT_CMP_EQ, []byte{number})
	return nil
}

func (c *compiler) ctStatusDNAT() {
	c.loadByName("ct status")
	c.mask(binary.NativeEndian.AppendUint32(nil, 1<<5)) // IPS_DST_NAT
	c.cmp(unix.NFT_CMP_NEQ, make([]byte, 4))
}

// ctStateKnown matches bit 1, established, or bit 2, related.
func (c *compiler) ctStateKnown() {
	c.loadByName("ct state")
	c.mask(binary.NativeEndian.AppendUint32(nil, 1<<1|1<<2))
	c.cmp(unix.NFT_CMP_NEQ, make([]byte, 4))
}

func (c *compiler) fibLocal(name string) {
	c.loadByName(name)
	c.cmp(unix.NFT_CMP_EQ, binary.NativeEndian.AppendUint32(nil, unix.RTN_LOCAL))
}

// fragment4 matches a packet with an offset or with the flag "more fragments": RFC 791, section 3.1.
func (c *compiler) fragment4() {
	c.checkFamily(unix.AF_INET)
	c.payload(networkHeader, 6, 2)
	c.mask([]byte{0x3f, 0xff})
	c.cmp(unix.NFT_CMP_NEQ, make([]byte, 2))
}

func (c *compiler) payload(base, offset, size uint32) {
	l := load{"payload", base, offset, size, 0}
	c.expr(l.expr, func(b *netlink.Buffer) { l.append(b, reg1) })
}

// fragment6 matches a packet with the fragment extension header: RFC 8200, section 4.5.
func (c *compiler) fragment6() {
	const present = 1 // NFT_EXTHDR_F_PRESENT, linux/netfilter/nf_tables.h
	c.checkFamily(unix.AF_INET6)
	c.expr("exthdr", func(b *netlink.Buffer) {
		b.Uint32BE(unix.NFTA_EXTHDR_DREG, reg1)
		b.Uint8(unix.NFTA_EXTHDR_TYPE, unix.IPPROTO_FRAGMENT)
		b.Uint32BE(unix.NFTA_EXTHDR_OFFSET, 0)
		b.Uint32BE(unix.NFTA_EXTHDR_LEN, 1)
		b.Uint32BE(unix.NFTA_EXTHDR_FLAGS, present)
	})
	c.cmp(unix.NFT_CMP_EQ, []byte{1})
}

// tcpSYN matches a packet that opens a TCP connection, in either direction: SYN without RST.
func (c *compiler) tcpSYN() error {
	const flagsOffset, syn, rst = 13, 1 << 1, 1 << 2 // RFC 9293, section 3.1
	if err := c.checkAbove("tcp"); err != nil {
		return err
	}
	c.payload(transportHeader, flagsOffset, 1)
	c.mask([]byte{syn | rst})
	c.cmp(unix.NFT_CMP_EQ, []byte{syn})
	return nil
}

// clampMSS lowers the maximum segment size option to what fits the packet's route. The
// kernel never raises the option.
func (c *compiler) clampMSS() error {
	const kind, offset, size = 2, 2, 2 // RFC 9293, section 3.2: kind, length, then two bytes
	if err := c.checkAbove("tcp"); err != nil {
		return err
	}
	c.expr("rt", func(b *netlink.Buffer) {
		b.Uint32BE(unix.NFTA_RT_DREG, reg1)
		b.Uint32BE(unix.NFTA_RT_KEY, unix.NFT_RT_TCPMSS)
	})
	c.expr("byteorder", func(b *netlink.Buffer) {
		b.Uint32BE(unix.NFTA_BYTEORDER_SREG, reg1)
		b.Uint32BE(unix.NFTA_BYTEORDER_DREG, reg1)
		b.Uint32BE(unix.NFTA_BYTEORDER_OP, unix.NFT_BYTEORDER_HTON)
		b.Uint32BE(unix.NFTA_BYTEORDER_LEN, size)
		b.Uint32BE(unix.NFTA_BYTEORDER_SIZE, size)
	})
	c.expr("exthdr", func(b *netlink.Buffer) {
		b.Uint8(unix.NFTA_EXTHDR_TYPE, kind)
		b.Uint32BE(unix.NFTA_EXTHDR_OFFSET, offset)
		b.Uint32BE(unix.NFTA_EXTHDR_LEN, size)
		b.Uint32BE(unix.NFTA_EXTHDR_OP, unix.NFT_EXTHDR_OP_TCPOPT)
		b.Uint32BE(unix.NFTA_EXTHDR_SREG, reg1)
	})
	return nil
}

func (c *compiler) setMark(word string) error {
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

func (c *compiler) lookup(set string, not, concatenation bool) {
	c.expr("lookup", func(b *netlink.Buffer) {
		b.String(unix.NFTA_LOOKUP_SET, set)
		b.Uint32BE(unix.NFTA_LOOKUP_SREG, sourceReg(concatenation))
		if not {
			b.Uint32BE(unix.NFTA_LOOKUP_FLAGS, unix.NFT_LOOKUP_F_INV)
		}
	})
}

// verdictMap ends the rule with the verdict that a map has for the loaded fields, if any.
func (c *compiler) verdictMap(concatenation bool) error {
	name, ok := strings.CutPrefix(c.next(), "@")
	if !ok {
		return errors.New("vmap without the name of a map")
	}
	c.expr("lookup", func(b *netlink.Buffer) {
		b.String(unix.NFTA_LOOKUP_SET, name)
		b.Uint32BE(unix.NFTA_LOOKUP_SREG, sourceReg(concatenation))
		b.Uint32BE(unix.NFTA_LOOKUP_DREG, verdictReg)
	})
	return nil
}

// log reads "[prefix TEXT] group NUMBER" and sends the packet to the listeners of a netlink group (nflog).
func (c *compiler) log() error {
	prefix := ""
	if c.accept("prefix") {
		prefix = strings.Trim(c.next(), `"`)
	}
	if !c.accept("group") {
		return errors.New("log without a group")
	}
	group, err := strconv.ParseUint(c.next(), 10, 16)
	c.expr("log", func(b *netlink.Buffer) {
		if prefix != "" {
			b.String(unix.NFTA_LOG_PREFIX, prefix)
		}
		b.Uint16BE(unix.NFTA_LOG_GROUP, uint16(group))
	})
	return err
}

// limit reads "[over] NUMBER/second burst NUMBER packets". It matches packets up to the rate, or with "over" those above.
func (c *compiler) limit() error {
	var flags uint32
	if c.accept("over") {
		flags = unix.NFT_LIMIT_F_INV
	}
	rate, perSecond := strings.CutSuffix(c.next(), "/second")
	n, err := strconv.ParseUint(rate, 10, 32)
	if err != nil || !perSecond || !c.accept("burst") {
		return errors.New("limit rate: want NUMBER/second burst NUMBER packets")
	}
	burst, err := strconv.ParseUint(c.next(), 10, 32)
	if err != nil || !c.accept("packets") {
		return errors.New("limit burst: want NUMBER packets")
	}
	c.expr("limit", func(b *netlink.Buffer) {
		b.Bytes(unix.NFTA_LIMIT_RATE, binary.BigEndian.AppendUint64(nil, n))
		b.Bytes(unix.NFTA_LIMIT_UNIT, binary.BigEndian.AppendUint64(nil, 1)) // second
		b.Uint32BE(unix.NFTA_LIMIT_BURST, uint32(burst))
		b.Uint32BE(unix.NFTA_LIMIT_TYPE, unix.NFT_LIMIT_PKTS)
		b.Uint32BE(unix.NFTA_LIMIT_FLAGS, flags)
	})
	return nil
}

// compare compares register 1 with a value, or with a prefix of addresses.
func (c *compiler) compare(t dataType, word string, not bool) error {
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
