package kernel

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/hwaddr"
)

// nftType is a data type of nft(8): its number there and its size in bytes.
type nftType struct {
	name string
	id   uint32
	size int
}

func nftTypeList() []nftType {
	return []nftType{
		{"ipv4_addr", 7, 4}, {"ipv6_addr", 8, 16}, {"ether_addr", 9, 6}, {"ether_type", 10, 2},
		{"inet_proto", 12, 1}, {"inet_service", 13, 2}, {"mark", 19, 4}, {"icmpv6_type", 29, 1}, {"devgroup", 35, 4}, {"ifname", 41, 16},
		{neighbourTarget, 4, 16}, {tunnelVNI, 0, 3}, // of which there is no set
	}
}

func nftTypeByName(name string) (nftType, error) {
	for _, t := range nftTypeList() {
		if t.name == name {
			return t, nil
		}
	}
	return nftType{}, fmt.Errorf("unknown nftables type %q", name)
}

// nftTypes is a type or a concatenation: "ipv4_addr . inet_service".
type nftTypes []nftType

func parseTypes(s string) (nftTypes, error) {
	var out nftTypes
	for part := range strings.SplitSeq(s, ".") {
		t, err := nftTypeByName(strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

// id is the number of the type: six bits a part.
func (t nftTypes) id() (n uint32) {
	for _, p := range t {
		n = n<<6 | p.id
	}
	return n
}

// inHostOrder tells whether it is a type whose values are not in network order.
func (t nftTypes) inHostOrder() bool {
	return len(t) == 1 && (t[0].name == "ifname" || t[0].name == "mark")
}

// size is the length in bytes: parts of a concatenation fill 32-bit words.
func (t nftTypes) size() (n int) {
	if len(t) == 1 {
		return t[0].size
	}
	for _, p := range t {
		n += wordCount(p.size) * 4
	}
	return n
}

func wordCount(size int) int { return (size + 3) / 4 }

// value encodes "10.1.1.1 . tcp . 80" by its types.
func (t nftTypes) value(s string) ([]byte, error) {
	parts := strings.Split(s, " . ")
	if len(parts) != len(t) {
		return nil, fmt.Errorf("value %q has %d parts, want %d", s, len(parts), len(t))
	}
	var out []byte
	for i, p := range parts {
		v, err := t[i].value(strings.TrimSpace(p))
		if err != nil {
			return nil, err
		}
		out = append(out, v...)
		for len(t) > 1 && len(out)%4 != 0 {
			out = append(out, 0)
		}
	}
	return out, nil
}

func (t nftType) value(s string) ([]byte, error) {
	switch t.name {
	case "ipv4_addr", "ipv6_addr":
		a, err := netip.ParseAddr(s)
		if err == nil && len(a.AsSlice()) != t.size {
			err = fmt.Errorf("%s is no %s", s, t.name)
		}
		return a.AsSlice(), err
	case neighbourTarget:
		return hex.DecodeString(strings.TrimPrefix(s, "0x"))
	case tunnelVNI:
		n, err := strconv.ParseUint(s, 0, 24)
		return []byte{byte(n >> 16), byte(n >> 8), byte(n)}, err
	case "ether_addr":
		return hwaddr.Parse(s)
	case "icmpv6_type":
		n, ok := map[string]byte{"mld-listener-report": 131, "mld-listener-done": 132, "mld2-listener-report": 143, "nd-router-solicit": 133,
			"nd-router-advert": 134, "nd-neighbor-solicit": 135, "nd-neighbor-advert": 136, "nd-redirect": 137}[s]
		if !ok {
			return nil, fmt.Errorf("unknown type of ICMPv6 %q", s)
		}
		return []byte{n}, nil
	case "ether_type":
		n, ok := map[string]uint16{"ip": unix.ETH_P_IP, "ip6": unix.ETH_P_IPV6, "arp": unix.ETH_P_ARP}[s]
		if !ok {
			return nil, fmt.Errorf("unknown type of frames %q", s)
		}
		return binary.BigEndian.AppendUint16(nil, n), nil
	case "ifname":
		v := make([]byte, t.size)
		copy(v, strings.Trim(s, `"`))
		return v, nil
	case "inet_proto":
		n, err := protoNumber(s)
		return []byte{n}, err
	case "inet_service":
		n, err := strconv.ParseUint(s, 10, 16)
		return binary.BigEndian.AppendUint16(nil, uint16(n)), err
	default:
		n, err := strconv.ParseUint(s, 0, 32)
		return binary.NativeEndian.AppendUint32(nil, uint32(n)), err
	}
}

func protoNumber(s string) (byte, error) {
	switch s {
	case "tcp":
		return unix.IPPROTO_TCP, nil
	case "udp":
		return unix.IPPROTO_UDP, nil
	case "sctp":
		return unix.IPPROTO_SCTP, nil
	case "icmp":
		return unix.IPPROTO_ICMP, nil
	case "icmpv6", "ipv6-icmp":
		return unix.IPPROTO_ICMPV6, nil
	}
	n, err := strconv.ParseUint(s, 10, 8)
	if err != nil {
		return 0, fmt.Errorf("unknown protocol %q", s)
	}
	return byte(n), nil
}

// setType is the type of a set, or of a map with what it maps to.
type setType struct{ key, data nftTypes }

// parseSetType reads "ipv4_addr . inet_service" or "... : ipv4_addr".
func parseSetType(s string) (t setType, err error) {
	key, data, isMap := strings.Cut(s, " : ")
	if t.key, err = parseTypes(key); err != nil || !isMap {
		return t, err
	}
	t.data, err = parseTypes(data)
	return t, err
}
