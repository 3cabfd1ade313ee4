package nft

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// decoder follows the registers through a rule's expressions.
type decoder struct {
	chain *Chain
	regs  map[uint32]register
	steps []Step

	counter *Counter // the first one
}

// register is the field that a register holds, and the mask applied to it.
type register struct {
	field string
	mask  []byte
}

func (d *decoder) expr(name string, p []byte) {
	switch name {
	case "payload", "meta", "ct", "fib":
		if reg, field, ok := loaded(d.chain.Family, name, p); ok {
			d.regs[reg] = register{field: field}
		}
	case "bitwise":
		d.bitwise(p)
	case "cmp":
		d.cmp(p)
	case "range":
		d.inRange(p)
	case "lookup":
		d.lookup(p)
	case "immediate":
		d.immediate(p)
	case "nat":
		verdict := "nat"
		if netlink.Uint32BE(netlink.Attr(p, unix.NFTA_NAT_TYPE)) == unix.NFT_NAT_SNAT {
			verdict = "accept"
		}
		d.steps = append(d.steps, Step{Verdict: verdict})
	case "redir":
		d.steps = append(d.steps, Step{Verdict: "nat"})
	case "masq":
		d.steps = append(d.steps, Step{Verdict: "accept"})
	case "reject":
		d.steps = append(d.steps, Step{Verdict: "drop"})
	case "queue", "tproxy", "synproxy":
		d.steps = append(d.steps, Step{Verdict: "queue"})
	case "target":
		d.target(netlink.Text(netlink.Attr(p, unix.NFTA_TARGET_NAME)))
	case "match":
		d.match(netlink.Text(netlink.Attr(p, unix.NFTA_MATCH_NAME)), netlink.Attr(p, unix.NFTA_MATCH_INFO))
	case "counter":
		d.count(p)
	case "log", "notrack", "objref", "dynset", "dup", "flow_offload", "last":
	default: // limit, quota, connlimit, socket, exthdr, osf, numgen ...
		d.unknown()
	}
}

func (d *decoder) count(p []byte) {
	packets, bytes := netlink.Attr(p, unix.NFTA_COUNTER_PACKETS), netlink.Attr(p, unix.NFTA_COUNTER_BYTES)
	if d.counter == nil && len(packets) == 8 && len(bytes) == 8 {
		d.counter = &Counter{binary.BigEndian.Uint64(packets), binary.BigEndian.Uint64(bytes)}
	}
}

// unknown adds a comparison that may be true or false.
func (d *decoder) unknown() { d.steps = append(d.steps, Step{Field: UnknownField}) }

// bitwise applies a mask. Any other bitwise operation makes the value unknown.
func (d *decoder) bitwise(p []byte) {
	in := d.regs[netlink.Uint32BE(netlink.Attr(p, unix.NFTA_BITWISE_SREG))]
	mask := netlink.Attr(netlink.Attr(p, unix.NFTA_BITWISE_MASK), unix.NFTA_DATA_VALUE)
	for _, b := range netlink.Attr(netlink.Attr(p, unix.NFTA_BITWISE_XOR), unix.NFTA_DATA_VALUE) {
		if b != 0 {
			mask = nil
		}
	}
	if mask == nil {
		in.field = UnknownField
	}
	d.regs[netlink.Uint32BE(netlink.Attr(p, unix.NFTA_BITWISE_DREG))] = register{in.field, mask}
}

func (d *decoder) cmp(p []byte) {
	in := d.regs[netlink.Uint32BE(netlink.Attr(p, unix.NFTA_CMP_SREG))]
	d.steps = append(d.steps, Step{
		Field: orUnknown(in.field), Op: int(netlink.Uint32BE(netlink.Attr(p, unix.NFTA_CMP_OP))), Mask: in.mask,
		Value: netlink.Attr(netlink.Attr(p, unix.NFTA_CMP_DATA), unix.NFTA_DATA_VALUE),
	})
}

// inRange adds a comparison with each end of a range. An inverted range is unknown.
func (d *decoder) inRange(p []byte) {
	in := d.regs[netlink.Uint32BE(netlink.Attr(p, unix.NFTA_RANGE_SREG))]
	if netlink.Uint32BE(netlink.Attr(p, unix.NFTA_RANGE_OP)) != unix.NFT_RANGE_EQ {
		d.unknown()
		return
	}
	for op, data := range map[int]uint16{CmpGreaterEqual: unix.NFTA_RANGE_FROM_DATA, CmpLessEqual: unix.NFTA_RANGE_TO_DATA} {
		value := netlink.Attr(netlink.Attr(p, data), unix.NFTA_DATA_VALUE)
		d.steps = append(d.steps, Step{Field: orUnknown(in.field), Op: op, Mask: in.mask, Value: value})
	}
}

func orUnknown(field string) string {
	if field == "" {
		return UnknownField
	}
	return field
}

func (d *decoder) lookup(p []byte) {
	in := d.regs[netlink.Uint32BE(netlink.Attr(p, unix.NFTA_LOOKUP_SREG))]
	s := Step{
		Field: orUnknown(in.field), Mask: in.mask,
		Set: SetName(d.chain.Family, d.chain.Table, netlink.Text(netlink.Attr(p, unix.NFTA_LOOKUP_SET))),
		Not: netlink.Uint32BE(netlink.Attr(p, unix.NFTA_LOOKUP_FLAGS))&unix.NFT_LOOKUP_F_INV != 0,
	}
	if dreg := netlink.Attr(p, unix.NFTA_LOOKUP_DREG); dreg != nil {
		s.Map = netlink.Uint32BE(dreg) == unix.NFT_REG_VERDICT
		d.regs[netlink.Uint32BE(dreg)] = register{field: UnknownField}
	}
	d.steps = append(d.steps, s)
}

func (d *decoder) immediate(p []byte) {
	reg := netlink.Uint32BE(netlink.Attr(p, unix.NFTA_IMMEDIATE_DREG))
	if reg != unix.NFT_REG_VERDICT {
		d.regs[reg] = register{field: UnknownField}
		return
	}
	verdict, chain := parseVerdict(netlink.Attr(netlink.Attr(p, unix.NFTA_IMMEDIATE_DATA), unix.NFTA_DATA_VERDICT))
	if verdict != "" {
		d.steps = append(d.steps, Step{Verdict: verdict, Chain: chain})
	}
}

// target adds the verdict of an iptables target.
func (d *decoder) target(name string) {
	switch name {
	case "LOG", "NFLOG", "MARK", "CONNMARK", "TCPMSS", "CHECKSUM", "CT", "CLASSIFY", "TRACE":
	case "REJECT":
		d.steps = append(d.steps, Step{Verdict: "drop"})
	case "DNAT", "REDIRECT":
		d.steps = append(d.steps, Step{Verdict: "nat"})
	case "MASQUERADE", "SNAT":
		d.steps = append(d.steps, Step{Verdict: "accept"})
	default:
		d.steps = append(d.steps, Step{Verdict: "queue"})
	}
}
