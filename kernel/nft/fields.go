package nft

import (
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// neighbourTarget is the target address of an ICMPv6 neighbour solicitation or
// advertisement that directly follows the IPv6 header (RFC 4861, sections 4.3 and 4.4).
// It is written as raw bits because nft(8) knows "icmpv6 taddr" only since 1.0.7.
const neighbourTarget = "@nh,384,128"

// targetType is the type of a set that holds link names and neighbour targets. It is
// the only set type with neighbourTarget that nft(8) can read.
const targetType = "ifname . " + neighbourTarget

// tunnelVNI is the network identifier (VNI) of a VXLAN packet (RFC 7348, section 5), as
// raw bits that every version of nft(8) reads. Rules compare it with a hexadecimal number.
const tunnelVNI = "@th,96,24"

// hopLimit is the hop limit of an IPv6 packet, in decimal.
const hopLimit = "ip6 hoplimit"

// connectionID is the number of a connection tracking entry (kernel 5.2), and the type of a set of such numbers.
const connectionID = "ct id"

// UnknownField is the name of a loaded value that the decoder does not know.
const UnknownField = "?"

// field is something of a packet that a rule can load into a register and compare.
type field struct {
	name   string // as nft(8) writes it
	typ    string // data type; "": a rule's text has no such field, see the compiler's statements
	family byte   // AF_INET, AF_INET6 or ARP if it exists in that family only
	above  string // "udp", "ipv6-icmp": exists in that protocol only; "ether": on Ethernet links only
	load   load
}

// load is the expression that loads a field.
type load struct {
	expr               string // "payload", "meta", "ct" or "fib"
	base, offset, size uint32 // of payload: header, and bytes in it
	key                uint32 // of meta and ct; flags of fib
}

const (
	linkHeader      = unix.NFT_PAYLOAD_LL_HEADER
	networkHeader   = unix.NFT_PAYLOAD_NETWORK_HEADER
	transportHeader = unix.NFT_PAYLOAD_TRANSPORT_HEADER
)

// fields is the one table of the compiler, which searches it by name, and of the decoder,
// which searches it by expression and takes the first match.
var fields = [...]field{
	{"ip saddr", "ipv4_addr", unix.AF_INET, "", load{"payload", networkHeader, 12, 4, 0}},
	{"ip daddr", "ipv4_addr", unix.AF_INET, "", load{"payload", networkHeader, 16, 4, 0}},
	{"ip protocol", "inet_proto", unix.AF_INET, "", load{"payload", networkHeader, 9, 1, 0}},
	{"arp saddr ether", "ether_addr", ARP, "", load{"payload", networkHeader, 8, 6, 0}},
	{"arp saddr ip", "ipv4_addr", ARP, "", load{"payload", networkHeader, 14, 4, 0}},
	{"ip6 saddr", "ipv6_addr", unix.AF_INET6, "", load{"payload", networkHeader, 8, 16, 0}},
	{"ip6 daddr", "ipv6_addr", unix.AF_INET6, "", load{"payload", networkHeader, 24, 16, 0}},
	{"ip6 nexthdr", "inet_proto", unix.AF_INET6, "", load{"payload", networkHeader, 6, 1, 0}},
	{hopLimit, hopLimit, unix.AF_INET6, "", load{"payload", networkHeader, 7, 1, 0}},
	{neighbourTarget, neighbourTarget, unix.AF_INET6, "", load{"payload", networkHeader, 48, 16, 0}},
	{"ether saddr", "ether_addr", 0, "ether", load{"payload", linkHeader, 6, 6, 0}},
	{"ether type", "ether_type", 0, "", load{"payload", linkHeader, 12, 2, 0}},
	{"icmpv6 type", "icmpv6_type", unix.AF_INET6, "ipv6-icmp", load{"payload", transportHeader, 0, 1, 0}},
	{"th sport", "inet_service", 0, "", load{"payload", transportHeader, 0, 2, 0}},
	{"th dport", "inet_service", 0, "", load{"payload", transportHeader, 2, 2, 0}},
	{"udp sport", "inet_service", 0, "udp", load{"payload", transportHeader, 0, 2, 0}},
	{"udp dport", "inet_service", 0, "udp", load{"payload", transportHeader, 2, 2, 0}},
	{tunnelVNI, tunnelVNI, 0, "udp", load{"payload", transportHeader, 12, 3, 0}},
	{"meta l4proto", "inet_proto", 0, "", load{expr: "meta", key: unix.NFT_META_L4PROTO}},
	{"meta nfproto", "", 0, "", load{expr: "meta", key: unix.NFT_META_NFPROTO}},
	{"meta protocol", "", 0, "", load{expr: "meta", key: unix.NFT_META_PROTOCOL}},
	{"meta mark", "mark", 0, "", load{expr: "meta", key: unix.NFT_META_MARK}},
	{"iifgroup", "devgroup", 0, "", load{expr: "meta", key: unix.NFT_META_IIFGROUP}},
	{"iifname", "ifname", 0, "", load{expr: "meta", key: unix.NFT_META_IIFNAME}},
	{"oifname", "ifname", 0, "", load{expr: "meta", key: unix.NFT_META_OIFNAME}},
	{"iif", "", 0, "", load{expr: "meta", key: unix.NFT_META_IIF}},
	{"oif", "", 0, "", load{expr: "meta", key: unix.NFT_META_OIF}},
	{"iiftype", "", 0, "", load{expr: "meta", key: unix.NFT_META_IIFTYPE}},
	{"ct state", "", 0, "", load{expr: "ct", key: unix.NFT_CT_STATE}},
	{"ct status", "", 0, "", load{expr: "ct", key: unix.NFT_CT_STATUS}},
	{"ct direction", "ct_dir", 0, "", load{expr: "ct", key: unix.NFT_CT_DIRECTION}},
	{connectionID, connectionID, 0, "", load{expr: "ct", key: unix.NFT_CT_ID}},
	{"fib saddr type", "", 0, "", load{expr: "fib", key: unix.NFTA_FIB_F_SADDR}},
	{"fib daddr type", "", 0, "", load{expr: "fib", key: unix.NFTA_FIB_F_DADDR}},
}

func fieldByName(name string) *field {
	for i := range fields {
		if fields[i].name == name {
			return &fields[i]
		}
	}
	return nil
}

// append writes the attributes of the expression that loads a field into a register.
func (l *load) append(b *netlink.Buffer, reg uint32) {
	switch l.expr {
	case "payload":
		b.Uint32BE(unix.NFTA_PAYLOAD_DREG, reg)
		b.Uint32BE(unix.NFTA_PAYLOAD_BASE, l.base)
		b.Uint32BE(unix.NFTA_PAYLOAD_OFFSET, l.offset)
		b.Uint32BE(unix.NFTA_PAYLOAD_LEN, l.size)
	case "meta":
		b.Uint32BE(unix.NFTA_META_DREG, reg)
		b.Uint32BE(unix.NFTA_META_KEY, l.key)
	case "ct":
		b.Uint32BE(unix.NFTA_CT_DREG, reg)
		b.Uint32BE(unix.NFTA_CT_KEY, l.key)
	case "fib":
		b.Uint32BE(unix.NFTA_FIB_DREG, reg)
		b.Uint32BE(unix.NFTA_FIB_RESULT, unix.NFT_FIB_RESULT_ADDRTYPE)
		b.Uint32BE(unix.NFTA_FIB_FLAGS, l.key)
	}
}

// loaded returns the register and the field that an expression of a chain of a family
// loads. ok is false for an expression that loads nothing.
func loaded(family, expr string, p []byte) (reg uint32, name string, ok bool) {
	var dreg []byte
	l := load{expr: expr}
	switch expr {
	case "payload":
		dreg = netlink.Attr(p, unix.NFTA_PAYLOAD_DREG)
		l.base = netlink.Uint32BE(netlink.Attr(p, unix.NFTA_PAYLOAD_BASE))
		l.offset = netlink.Uint32BE(netlink.Attr(p, unix.NFTA_PAYLOAD_OFFSET))
		l.size = netlink.Uint32BE(netlink.Attr(p, unix.NFTA_PAYLOAD_LEN))
	case "meta":
		dreg, l.key = netlink.Attr(p, unix.NFTA_META_DREG), netlink.Uint32BE(netlink.Attr(p, unix.NFTA_META_KEY))
	case "ct":
		dreg, l.key = netlink.Attr(p, unix.NFTA_CT_DREG), netlink.Uint32BE(netlink.Attr(p, unix.NFTA_CT_KEY))
	case "fib":
		dreg, l.key = netlink.Attr(p, unix.NFTA_FIB_DREG), netlink.Uint32BE(netlink.Attr(p, unix.NFTA_FIB_FLAGS))
		if netlink.Uint32BE(netlink.Attr(p, unix.NFTA_FIB_RESULT)) != unix.NFT_FIB_RESULT_ADDRTYPE {
			l.expr = "" // another question to the FIB
		}
	}
	name = UnknownField
	for i := range fields {
		if fields[i].matches(&l, family) {
			name = fields[i].meaning()
			break
		}
	}
	return netlink.Uint32BE(dreg), name, dreg != nil
}

// matches reports whether an expression in a chain of a family loads the field.
func (f *field) matches(l *load, family string) bool {
	if f.load.expr != l.expr || f.load.key != l.key || f.load.base != l.base || f.load.offset != l.offset || !f.existsIn(family) {
		return false
	}
	switch {
	case f.typ != "ipv4_addr" && f.typ != "ipv6_addr":
		if l.size != f.load.size {
			return false
		}
	case l.size > f.load.size: // nft(8) loads only the whole bytes of a prefix
		return false
	}
	// Where the chain sees both families, a short load at the start of the header may be of IPv4. At the place of the hop
	// limit, IPv4 has the second byte of the fragment offset, which no rule loads alone.
	const ipv4Header = 20 // bytes
	return f.family != unix.AF_INET6 || family == "ip6" || l.size > 4 || l.base != networkHeader || l.offset >= ipv4Header ||
		f.name == hopLimit
}

func (f *field) existsIn(family string) bool {
	switch family {
	case "ip":
		return f.family == 0 || f.family == unix.AF_INET
	case "ip6":
		return f.family == 0 || f.family == unix.AF_INET6
	case "inet":
		return f.family != ARP
	case "arp":
		return f.family == 0 || f.family == ARP
	}
	return true
}

// meaning returns the name under which the decoder reports a field. The protocol in the
// header of IPv4 and IPv6 is reported as the kernel's own.
func (f *field) meaning() string {
	switch f.name {
	case "ip protocol", "ip6 nexthdr":
		return "meta l4proto"
	}
	return f.name
}

// IsTypeof reports whether nft(8) declares a set of the type with "typeof", because the type
// has no name.
func IsTypeof(setType string) bool { return setType == targetType || setType == connectionID }
