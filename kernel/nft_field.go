package kernel

import (
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// neighbourTarget is the target of an ICMPv6 neighbour solicitation or advertisement
// that follows the IPv6 header at once (RFC 4861, sections 4.3 and 4.4), in the words of
// nft(8): it calls the place "icmpv6 taddr" since 1.0.7 only, this it reads in all versions.
const neighbourTarget = "@nh,384,128"

// targetType is the one type of set with it that has a form which nft(8) can read.
const targetType = "ifname . " + neighbourTarget

// tunnelVNI is a VXLAN packet's number of its network (RFC 7348, section 5), in the words of
// nft(8) that all versions read; it is compared with a hexadecimal number.
const tunnelVNI = "@th,96,24"

// field is something of a packet that can be compared.
type field struct {
	typ    string
	family byte   // AF_INET, AF_INET6 or nfprotoARP: meaningful in that family only
	above  string // "udp", "ipv6-icmp": meaningful in that protocol only; "ether": on links of that type
	load   func(reg uint32) (name string, attrs func(*netlink.Buffer))
}

func payload(base, offset, length uint32) func(uint32) (string, func(*netlink.Buffer)) {
	return func(reg uint32) (string, func(*netlink.Buffer)) {
		return "payload", func(b *netlink.Buffer) {
			b.Uint32BE(unix.NFTA_PAYLOAD_DREG, reg)
			b.Uint32BE(unix.NFTA_PAYLOAD_BASE, base)
			b.Uint32BE(unix.NFTA_PAYLOAD_OFFSET, offset)
			b.Uint32BE(unix.NFTA_PAYLOAD_LEN, length)
		}
	}
}

func meta(key uint32) func(uint32) (string, func(*netlink.Buffer)) {
	return func(reg uint32) (string, func(*netlink.Buffer)) {
		return "meta", func(b *netlink.Buffer) {
			b.Uint32BE(unix.NFTA_META_DREG, reg)
			b.Uint32BE(unix.NFTA_META_KEY, key)
		}
	}
}

func fieldByName(name string) (field, bool) {
	const link, network, transport = unix.NFT_PAYLOAD_LL_HEADER, unix.NFT_PAYLOAD_NETWORK_HEADER, unix.NFT_PAYLOAD_TRANSPORT_HEADER
	switch name {
	case "ip saddr":
		return field{"ipv4_addr", unix.AF_INET, "", payload(network, 12, 4)}, true
	case "ip daddr":
		return field{"ipv4_addr", unix.AF_INET, "", payload(network, 16, 4)}, true
	case "ip6 saddr":
		return field{"ipv6_addr", unix.AF_INET6, "", payload(network, 8, 16)}, true
	case "ip6 daddr":
		return field{"ipv6_addr", unix.AF_INET6, "", payload(network, 24, 16)}, true
	case "ether saddr":
		return field{"ether_addr", 0, "ether", payload(link, 6, 6)}, true
	case "ether type":
		return field{"ether_type", 0, "", payload(link, 12, 2)}, true
	case "ip6 nexthdr":
		return field{"inet_proto", unix.AF_INET6, "", payload(network, 6, 1)}, true
	case neighbourTarget:
		return field{neighbourTarget, unix.AF_INET6, "", payload(network, 48, 16)}, true
	case "arp saddr ether":
		return field{"ether_addr", nfprotoARP, "", payload(network, 8, 6)}, true
	case "arp saddr ip":
		return field{"ipv4_addr", nfprotoARP, "", payload(network, 14, 4)}, true
	case "icmpv6 type":
		return field{"icmpv6_type", unix.AF_INET6, "ipv6-icmp", payload(transport, 0, 1)}, true
	case "udp sport":
		return field{"inet_service", 0, "udp", payload(transport, 0, 2)}, true
	case "udp dport":
		return field{"inet_service", 0, "udp", payload(transport, 2, 2)}, true
	case tunnelVNI:
		return field{tunnelVNI, 0, "udp", payload(transport, 12, 3)}, true
	case "th dport":
		return field{"inet_service", 0, "", payload(transport, 2, 2)}, true
	case "meta l4proto":
		return field{"inet_proto", 0, "", meta(unix.NFT_META_L4PROTO)}, true
	case "iifgroup":
		return field{"devgroup", 0, "", meta(unix.NFT_META_IIFGROUP)}, true
	case "iifname":
		return field{"ifname", 0, "", meta(unix.NFT_META_IIFNAME)}, true
	case "oifname":
		return field{"ifname", 0, "", meta(unix.NFT_META_OIFNAME)}, true
	case "meta mark":
		return field{"mark", 0, "", meta(unix.NFT_META_MARK)}, true
	}
	return field{}, false
}
