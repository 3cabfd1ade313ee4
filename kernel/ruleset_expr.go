package kernel

import (
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// reader follows the registers of a rule's expressions.
type reader struct {
	chain *FilterChain
	regs  map[uint32]register
	steps []Step
}

// register is what was loaded into one.
type register struct {
	field string
	mask  []byte
}

func (x *reader) expr(name string, p []byte) {
	switch name {
	case "payload":
		x.load(netlink.Uint32BE(netlink.Attr(p, unix.NFTA_PAYLOAD_DREG)), x.payload(p))
	case "meta":
		x.meta(p)
	case "ct":
		x.ct(p)
	case "fib":
		x.load(netlink.Uint32BE(netlink.Attr(p, unix.NFTA_FIB_DREG)), fibField(p))
	case "bitwise":
		x.bitwise(p)
	case "cmp":
		x.cmp(p)
	case "range":
		x.between(p)
	case "lookup":
		x.lookup(p)
	case "immediate":
		x.immediate(p)
	case "nat", "masq", "redir":
		if name == "nat" && netlink.Uint32BE(netlink.Attr(p, unix.NFTA_NAT_TYPE)) == unix.NFT_NAT_SNAT {
			name = "snat"
		}
		verdict := map[string]string{"nat": "nat", "redir": "nat"}[name]
		if verdict == "" {
			verdict = "accept"
		}
		x.steps = append(x.steps, Step{Verdict: verdict})
	case "reject":
		x.steps = append(x.steps, Step{Verdict: "drop"})
	case "queue", "tproxy", "synproxy":
		x.steps = append(x.steps, Step{Verdict: "queue"})
	case "target":
		x.target(netlink.Text(netlink.Attr(p, unix.NFTA_TARGET_NAME)))
	case "match":
		x.match(netlink.Text(netlink.Attr(p, unix.NFTA_MATCH_NAME)), netlink.Attr(p, unix.NFTA_MATCH_INFO))
	case "counter", "log", "notrack", "objref", "dynset", "dup", "flow_offload", "last":
	default: // limit, quota, connlimit, range, socket, exthdr, osf, numgen ...
		x.unknown()
	}
}

// unknown is a comparison that may be true or not.
func (x *reader) unknown() { x.steps = append(x.steps, Step{Field: "?"}) }

func (x *reader) load(reg uint32, field string) { x.regs[reg] = register{field: field} }

// payload names a field of a header by its place.
func (x *reader) payload(p []byte) string {
	base, offset, size := netlink.Uint32BE(netlink.Attr(p, unix.NFTA_PAYLOAD_BASE)), netlink.Uint32BE(netlink.Attr(p, unix.NFTA_PAYLOAD_OFFSET)), netlink.Uint32BE(netlink.Attr(p, unix.NFTA_PAYLOAD_LEN))
	type place struct{ base, offset uint32 }
	at := place{base, offset}
	switch {
	case base == unix.NFT_PAYLOAD_NETWORK_HEADER && offset == 12 && size <= 4:
		return "ip saddr"
	case base == unix.NFT_PAYLOAD_NETWORK_HEADER && offset == 16 && size <= 4:
		return "ip daddr"
	case base == unix.NFT_PAYLOAD_NETWORK_HEADER && offset == 8 && (size > 4 || x.chain.Family == "ip6"):
		return "ip6 saddr"
	case base == unix.NFT_PAYLOAD_NETWORK_HEADER && offset == 24:
		return "ip6 daddr"
	case at == place{unix.NFT_PAYLOAD_NETWORK_HEADER, 9} && x.chain.Family != "ip6", at == place{unix.NFT_PAYLOAD_NETWORK_HEADER, 6} && x.chain.Family == "ip6":
		return "l4proto"
	case at == place{unix.NFT_PAYLOAD_TRANSPORT_HEADER, 2} && size == 2:
		return "dport"
	}
	return "?"
}

func (x *reader) meta(p []byte) {
	if netlink.Attr(p, unix.NFTA_META_DREG) == nil {
		return // it sets something
	}
	field := map[uint32]string{
		unix.NFT_META_IIFNAME: "iifname", unix.NFT_META_OIFNAME: "oifname", unix.NFT_META_IIF: "iif", unix.NFT_META_OIF: "oif",
		unix.NFT_META_L4PROTO: "l4proto", unix.NFT_META_NFPROTO: "nfproto",
	}[netlink.Uint32BE(netlink.Attr(p, unix.NFTA_META_KEY))]
	if field == "" {
		field = "?"
	}
	x.load(netlink.Uint32BE(netlink.Attr(p, unix.NFTA_META_DREG)), field)
}

func (x *reader) ct(p []byte) {
	if netlink.Attr(p, unix.NFTA_CT_DREG) == nil {
		return
	}
	field := map[uint32]string{unix.NFT_CT_STATE: "ct state", unix.NFT_CT_STATUS: "ct status"}[netlink.Uint32BE(netlink.Attr(p, unix.NFTA_CT_KEY))]
	if field == "" {
		field = "?"
	}
	x.load(netlink.Uint32BE(netlink.Attr(p, unix.NFTA_CT_DREG)), field)
}

func fibField(p []byte) string {
	if netlink.Uint32BE(netlink.Attr(p, unix.NFTA_FIB_RESULT)) == unix.NFT_FIB_RESULT_ADDRTYPE && netlink.Uint32BE(netlink.Attr(p, unix.NFTA_FIB_FLAGS)) == unix.NFTA_FIB_F_DADDR {
		return "fib daddr type"
	}
	return "?"
}

// bitwise masks; whatever else it may do makes the value unknown.
func (x *reader) bitwise(p []byte) {
	in := x.regs[netlink.Uint32BE(netlink.Attr(p, unix.NFTA_BITWISE_SREG))]
	mask := netlink.Attr(netlink.Attr(p, unix.NFTA_BITWISE_MASK), unix.NFTA_DATA_VALUE)
	for _, b := range netlink.Attr(netlink.Attr(p, unix.NFTA_BITWISE_XOR), unix.NFTA_DATA_VALUE) {
		if b != 0 {
			mask = nil
		}
	}
	if mask == nil {
		in.field = "?"
	}
	x.regs[netlink.Uint32BE(netlink.Attr(p, unix.NFTA_BITWISE_DREG))] = register{in.field, mask}
}

func (x *reader) cmp(p []byte) {
	in := x.regs[netlink.Uint32BE(netlink.Attr(p, unix.NFTA_CMP_SREG))]
	x.steps = append(x.steps, Step{
		Field: orUnknown(in.field), Op: int(netlink.Uint32BE(netlink.Attr(p, unix.NFTA_CMP_OP))), Mask: in.mask,
		Value: netlink.Attr(netlink.Attr(p, unix.NFTA_CMP_DATA), unix.NFTA_DATA_VALUE),
	})
}

// between is a comparison with both ends of a range, or with what is outside of it.
func (x *reader) between(p []byte) {
	in := x.regs[netlink.Uint32BE(netlink.Attr(p, unix.NFTA_RANGE_SREG))]
	if netlink.Uint32BE(netlink.Attr(p, unix.NFTA_RANGE_OP)) != unix.NFT_RANGE_EQ {
		x.unknown()
		return
	}
	for op, data := range map[int]uint16{CmpGreaterEqual: unix.NFTA_RANGE_FROM_DATA, CmpLessEqual: unix.NFTA_RANGE_TO_DATA} {
		x.steps = append(x.steps, Step{Field: orUnknown(in.field), Op: op, Mask: in.mask, Value: netlink.Attr(netlink.Attr(p, data), unix.NFTA_DATA_VALUE)})
	}
}

func orUnknown(field string) string {
	if field == "" {
		return "?"
	}
	return field
}

func (x *reader) lookup(p []byte) {
	in := x.regs[netlink.Uint32BE(netlink.Attr(p, unix.NFTA_LOOKUP_SREG))]
	s := Step{
		Field: orUnknown(in.field), Mask: in.mask, Set: SetName(x.chain.Family, x.chain.Table, netlink.Text(netlink.Attr(p, unix.NFTA_LOOKUP_SET))),
		Not: netlink.Uint32BE(netlink.Attr(p, unix.NFTA_LOOKUP_FLAGS))&unix.NFT_LOOKUP_F_INV != 0,
	}
	if dreg := netlink.Attr(p, unix.NFTA_LOOKUP_DREG); dreg != nil {
		s.Map = netlink.Uint32BE(dreg) == unix.NFT_REG_VERDICT
		x.regs[netlink.Uint32BE(dreg)] = register{field: "?"}
	}
	x.steps = append(x.steps, s)
}

func (x *reader) immediate(p []byte) {
	reg := netlink.Uint32BE(netlink.Attr(p, unix.NFTA_IMMEDIATE_DREG))
	if reg != unix.NFT_REG_VERDICT {
		x.regs[reg] = register{field: "?"}
		return
	}
	verdict, chain := parseVerdict(netlink.Attr(netlink.Attr(p, unix.NFTA_IMMEDIATE_DATA), unix.NFTA_DATA_VERDICT))
	if verdict != "" {
		x.steps = append(x.steps, Step{Verdict: verdict, Chain: chain})
	}
}

// target is one of iptables' own.
func (x *reader) target(name string) {
	switch name {
	case "LOG", "NFLOG", "MARK", "CONNMARK", "TCPMSS", "CHECKSUM", "CT", "CLASSIFY", "TRACE":
	case "REJECT":
		x.steps = append(x.steps, Step{Verdict: "drop"})
	case "DNAT", "REDIRECT":
		x.steps = append(x.steps, Step{Verdict: "nat"})
	case "MASQUERADE", "SNAT":
		x.steps = append(x.steps, Step{Verdict: "accept"})
	default:
		x.steps = append(x.steps, Step{Verdict: "queue"})
	}
}
