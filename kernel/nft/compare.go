package nft

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
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
		differ("hook", h.describeHook(), w.describeHook())
		differ("policy", h.policy(), w.policy())
	case "set", "map":
		_, h := ParseSet(m[4:])
		_, w := ParseSet(want[4:])
		differ("type", h, w)
		differ("flags", setFlags(m), setFlags(want))
	}
	return d
}

const tableDormant = 1 // linux/netfilter/nf_tables.h: NFT_TABLE_F_DORMANT

func setFlags(m []byte) uint32 { return netlink.Uint32BE(netlink.Attr(m[4:], unix.NFTA_SET_FLAGS)) }

// SameHook reports whether two chains have the same type, hook and priority. The kernel cannot change these.
func (c *Chain) SameHook(o *Chain) bool { return c.describeHook() == o.describeHook() }

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

// SameRule reports whether two rules have the same expressions. have is as the kernel lists it: with attributes that
// have their default, and with other numbers of the same registers.
func SameRule(have, want []byte) bool {
	return slices.EqualFunc(expressions(have), expressions(want), func(h, w expression) bool {
		return h.name == w.name && sameAttrs(h.attrs, w.attrs)
	})
}

type expression struct {
	name  string
	attrs map[uint16][]byte
}

func expressions(rule []byte) (out []expression) {
	netlink.EachAttr(netlink.Attr(rule, unix.NFTA_RULE_EXPRESSIONS), func(_ uint16, p []byte) {
		x := expression{netlink.Text(netlink.Attr(p, unix.NFTA_EXPR_NAME)), map[uint16][]byte{}}
		netlink.EachAttr(netlink.Attr(p, unix.NFTA_EXPR_DATA), func(typ uint16, v []byte) { x.attrs[typ] = v })
		x.normalize()
		out = append(out, x)
	})
	return out
}

// normalize writes registers and defaults as the kernel lists them.
func (x expression) normalize() {
	for _, typ := range registerAttrs(x.name) {
		if v := x.attrs[typ]; len(v) == 4 {
			x.attrs[typ] = binary.BigEndian.AppendUint32(nil, listedRegister(binary.BigEndian.Uint32(v)))
		}
	}
	if x.name == "nat" {
		x.normalizeNAT()
	}
}

// registerAttrs returns the attributes of an expression that hold the number of a register.
func registerAttrs(expr string) []uint16 {
	switch expr {
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

// normalizeNAT adds what the kernel derives: the ends of ranges, and flags that say what is rewritten.
func (x expression) normalizeNAT() {
	const mapAddresses, mapPorts = 1 << 0, 1 << 1 // linux/netfilter/nf_nat.h: NF_NAT_RANGE_*
	flags := netlink.Uint32BE(x.attrs[unix.NFTA_NAT_FLAGS])
	for _, r := range []struct {
		least, most uint16
		flag        uint32
	}{
		{unix.NFTA_NAT_REG_ADDR_MIN, unix.NFTA_NAT_REG_ADDR_MAX, mapAddresses},
		{unix.NFTA_NAT_REG_PROTO_MIN, unix.NFTA_NAT_REG_PROTO_MAX, mapPorts},
	} {
		if x.attrs[r.least] == nil {
			continue
		}
		flags |= r.flag
		if x.attrs[r.most] == nil {
			x.attrs[r.most] = x.attrs[r.least]
		}
	}
	x.attrs[unix.NFTA_NAT_FLAGS] = binary.BigEndian.AppendUint32(nil, flags)
}

// sameAttrs compares attributes. An attribute that consists of zeros equals a missing one.
func sameAttrs(have, want map[uint16][]byte) bool {
	for _, typ := range slices.Concat(slices.Collect(maps.Keys(have)), slices.Collect(maps.Keys(want))) {
		if !sameAttr(have[typ], want[typ]) {
			return false
		}
	}
	return true
}

func sameAttr(have, want []byte) bool {
	if bytes.Equal(have, want) || isZero(have) && isZero(want) {
		return true
	}
	h, ok1 := nested(have)
	w, ok2 := nested(want)
	return ok1 && ok2 && sameAttrs(h, w)
}

func isZero(p []byte) bool { return len(bytes.Trim(p, "\x00")) == 0 }

// nested returns the attributes inside an attribute, and whether it consists of attributes.
func nested(p []byte) (map[uint16][]byte, bool) {
	out, size := map[uint16][]byte{}, 0
	netlink.EachAttr(p, func(typ uint16, v []byte) {
		out[typ] = v
		size += (4 + len(v) + 3) &^ 3
	})
	return out, len(out) > 0 && size >= len(p)
}
