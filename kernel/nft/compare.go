package nft

import (
	"bytes"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// Differs compares a table, chain, set or map with the kernel's message about it. It returns what differs, as text.
func (p Part) Differs(m []byte) (d []string) {
	add, err := p.Add()
	if err != nil || len(m) < 4 {
		return []string{"cannot be compared"}
	}
	want := add.Body
	differ := func(what string, have, want any) {
		if have != want {
			d = append(d, fmt.Sprintf("%s is %v, want %v", what, have, want))
		}
	}
	switch p.Kind {
	case "table":
		if netlink.Uint32BE(netlink.Attr(m[4:], unix.NFTA_TABLE_FLAGS))&tableDormant != 0 {
			d = append(d, "is dormant")
		}
	case "chain":
		h, w := ParseChain(m), ParseChain(want)
		if !h.SameHook(w) {
			differ("hook", h.describeHook(), w.describeHook())
		}
		differ("policy", h.policy(), w.policy())
	case "set", "map":
		if !sameAttr(m[4:], want[4:], unix.NFTA_SET_KEY_TYPE) || !sameAttr(m[4:], want[4:], unix.NFTA_SET_DATA_TYPE) {
			_, h := ParseSet(m[4:])
			_, w := ParseSet(want[4:])
			differ("type", h, w)
		}
		differ("flags", setFlags(m), setFlags(want))
	}
	return d
}

func sameAttr(a, b []byte, typ uint16) bool {
	return bytes.Equal(netlink.Attr(a, typ), netlink.Attr(b, typ))
}

const tableDormant = 1 // linux/netfilter/nf_tables.h: NFT_TABLE_F_DORMANT

// setFlags returns the flags of a set, without the one that says again that its type is a concatenation: nft(8) 1.0.6
// sets it only with intervals.
func setFlags(m []byte) uint32 {
	return netlink.Uint32BE(netlink.Attr(m[4:], unix.NFTA_SET_FLAGS)) &^ SetFlagConcat
}

// SameHook reports whether two chains have the same type, hook and priority. The kernel cannot change these.
func (c *Chain) SameHook(o *Chain) bool {
	return c.Hook == o.Hook && (c.Hook == "" || c.Type == o.Type && c.Priority == o.Priority)
}

func (c *Chain) describeHook() string {
	if c.Hook == "" {
		return "none"
	}
	return fmt.Sprintf("%s %s priority %d", c.Type, c.Hook, c.Priority)
}

func (c *Chain) policy() string {
	if c.Drop {
		return "drop"
	}
	return "accept"
}

// SameRule reports whether a rule, as the kernel lists it, has the expressions that Compile returned. The kernel lists
// also attributes that have their default, and other numbers of the same registers.
func SameRule(have, want []byte) bool {
	have = netlink.Attr(have, unix.NFTA_RULE_EXPRESSIONS)
	for len(have) > 0 && len(want) > 0 {
		var h, w []byte
		_, h, have = netlink.NextAttr(have)
		_, w, want = netlink.NextAttr(want)
		if !sameExpression(h, w) {
			return false
		}
	}
	return len(have) == len(want)
}

func sameExpression(have, want []byte) bool {
	name := netlink.Attr(want, unix.NFTA_EXPR_NAME)
	if !bytes.Equal(name, netlink.Attr(have, unix.NFTA_EXPR_NAME)) {
		return false
	}
	x := expression(netlink.Text(name))
	if x == "counter" {
		return true // what it has counted is not part of the rule
	}
	have, want = netlink.Attr(have, unix.NFTA_EXPR_DATA), netlink.Attr(want, unix.NFTA_EXPR_DATA)
	return eachType(have, want, func(typ uint16) bool { return x.same(typ, have, want) })
}

// expression is the name of an expression.
type expression string

// same compares one attribute.
func (x expression) same(typ uint16, have, want []byte) bool {
	h, w := x.attr(typ, have), x.attr(typ, want)
	switch {
	case len(h) == 4 && len(w) == 4 && slices.Contains(x.registers(), typ):
		return listedRegister(netlink.Uint32BE(h)) == listedRegister(netlink.Uint32BE(w))
	case x == "nat" && typ == unix.NFTA_NAT_FLAGS:
		return listedNATFlags(have) == listedNATFlags(want)
	}
	return sameValue(h, w)
}

// attr returns an attribute. The kernel lists the end of a NAT's range even if it was not given.
func (x expression) attr(typ uint16, all []byte) []byte {
	v := netlink.Attr(all, typ)
	switch {
	case v != nil || x != "nat":
	case typ == unix.NFTA_NAT_REG_ADDR_MAX:
		return netlink.Attr(all, unix.NFTA_NAT_REG_ADDR_MIN)
	case typ == unix.NFTA_NAT_REG_PROTO_MAX:
		return netlink.Attr(all, unix.NFTA_NAT_REG_PROTO_MIN)
	}
	return v
}

// listedNATFlags returns the flags that the kernel lists: it adds those that say what is rewritten.
func listedNATFlags(all []byte) uint32 {
	const mapAddresses, mapPorts = 1 << 0, 1 << 1 // linux/netfilter/nf_nat.h: NF_NAT_RANGE_*
	flags := netlink.Uint32BE(netlink.Attr(all, unix.NFTA_NAT_FLAGS))
	if netlink.Attr(all, unix.NFTA_NAT_REG_ADDR_MIN) != nil {
		flags |= mapAddresses
	}
	if netlink.Attr(all, unix.NFTA_NAT_REG_PROTO_MIN) != nil {
		flags |= mapPorts
	}
	return flags
}

// registers returns the attributes that hold the number of a register.
func (x expression) registers() []uint16 {
	switch x {
	case "payload", "cmp", "immediate", "fib", "rt":
		return []uint16{1}
	case "meta":
		return []uint16{unix.NFTA_META_DREG, unix.NFTA_META_SREG}
	case "ct":
		return []uint16{unix.NFTA_CT_DREG, unix.NFTA_CT_SREG}
	case "bitwise", "byteorder":
		return []uint16{1, 2}
	case "lookup":
		return []uint16{unix.NFTA_LOOKUP_SREG, unix.NFTA_LOOKUP_DREG}
	case "nat":
		return []uint16{unix.NFTA_NAT_REG_ADDR_MIN, unix.NFTA_NAT_REG_ADDR_MAX, unix.NFTA_NAT_REG_PROTO_MIN, unix.NFTA_NAT_REG_PROTO_MAX}
	case "exthdr":
		return []uint16{unix.NFTA_EXTHDR_DREG, unix.NFTA_EXTHDR_SREG}
	}
	return nil
}

// listedRegister returns the number that the kernel lists (nft_dump_register): every fourth register of 4 bytes is also
// a register of 16 bytes.
func listedRegister(n uint32) uint32 {
	if first := uint32(unix.NFT_REG32_00); n >= first && (n-first)%4 == 0 {
		return unix.NFT_REG_1 + (n-first)/4
	}
	return n
}

// eachType reports whether same holds for the type of every attribute in either list.
func eachType(have, want []byte, same func(typ uint16) bool) bool {
	ok := true
	both := func(typ uint16, _ []byte) { ok = ok && same(typ) }
	netlink.EachAttr(have, both)
	netlink.EachAttr(want, both)
	return ok
}

// sameValue compares values, which may consist of attributes. A value of zeros equals a missing one.
func sameValue(have, want []byte) bool {
	return bytes.Equal(have, want) || isZero(have) && isZero(want) || isNested(have) && isNested(want) &&
		eachType(have, want, func(typ uint16) bool { return sameValue(netlink.Attr(have, typ), netlink.Attr(want, typ)) })
}

func isZero(p []byte) bool { return len(bytes.Trim(p, "\x00")) == 0 }

// isNested reports whether a value consists of attributes.
func isNested(p []byte) bool {
	size := 0
	netlink.EachAttr(p, func(_ uint16, v []byte) { size += (4 + len(v) + 3) &^ 3 })
	return size > 0 && size >= len(p)
}
