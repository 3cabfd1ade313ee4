package nft

import (
	"encoding/binary"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// Fields that the extensions of iptables compare, as numbers in host byte order.
const (
	// FieldCTState is the connection state as in nftables, with XTStateDNAT.
	FieldCTState = "xt ctstate"
	// FieldDstType is 1 << the type of the route to the destination, rtnetlink(7).
	FieldDstType = "xt dsttype"

	// XTStateDNAT is set if the destination was rewritten.
	XTStateDNAT = 1 << 7
)

// match decodes an extension of iptables, whose parameters are a structure of the kernel's headers. It knows the
// extensions that most hosts use; others are unknown.
func (d *decoder) match(name string, info []byte) {
	var steps []Step
	switch name {
	case "comment":
		return
	case "conntrack":
		steps = xtConntrack(info)
	case "addrtype":
		steps = xtAddrtype(info)
	case "tcp", "udp":
		steps = xtPorts(info)
	}
	if steps == nil {
		d.unknown()
		return
	}
	d.steps = append(d.steps, steps...)
}

// xtConntrack decodes struct xt_conntrack_mtinfo3 (and 2) of linux/netfilter/xt_conntrack.h. It returns nil unless the
// rule matches only states.
func xtConntrack(info []byte) []Step {
	const flags, inverted, states, size, stateOnly = 146, 148, 150, 154, 1
	if len(info) < size || netlink.Uint16(info[flags:]) != stateOnly {
		return nil
	}
	op := CmpNotEqual
	if netlink.Uint16(info[inverted:])&stateOnly != 0 {
		op = CmpEqual
	}
	return []Step{{Field: FieldCTState, Mask: native32(uint32(netlink.Uint16(info[states:]))), Op: op, Value: native32(0)}}
}

// xtAddrtype decodes struct xt_addrtype_info_v1 of linux/netfilter/xt_addrtype.h. It returns nil unless the rule
// matches only the destination.
func xtAddrtype(info []byte) []Step {
	const invertDest = 2
	if len(info) < 8 || netlink.Uint16(info) != 0 || netlink.Uint32(info[4:])&^invertDest != 0 {
		return nil
	}
	op := CmpNotEqual
	if netlink.Uint32(info[4:])&invertDest != 0 {
		op = CmpEqual
	}
	return []Step{{Field: FieldDstType, Mask: native32(uint32(netlink.Uint16(info[2:]))), Op: op, Value: native32(0)}}
}

// xtPorts decodes struct xt_tcp or xt_udp of linux/netfilter/xt_tcpudp.h. It returns nil unless the rule matches only
// the destination port.
func xtPorts(info []byte) []Step {
	if len(info) < 9 || netlink.Uint16(info) != 0 || netlink.Uint16(info[2:]) != 1<<16-1 {
		return nil
	}
	for _, b := range info[8:min(len(info), 12)] {
		if b != 0 {
			return nil
		}
	}
	port := func(at int) []byte { return binary.BigEndian.AppendUint16(nil, netlink.Uint16(info[at:])) }
	return []Step{{Field: "th dport", Op: CmpGreaterEqual, Value: port(4)}, {Field: "th dport", Op: CmpLessEqual, Value: port(6)}}
}

func native32(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }
