package nft

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/hwaddr"
	"github.com/fairlead/fairlead/kernel/netlink"
)

// dataType is a data type of nft(8).
type dataType struct {
	name string
	id   uint32 // its number in nft(8)
	size int    // bytes
}

const integer = 4 // the number of nft(8) for types without a name

var dataTypes = [...]dataType{
	{"ipv4_addr", 7, 4}, {"ipv6_addr", 8, 16}, {"ether_addr", 9, 6}, {"ether_type", 10, 2},
	{"inet_proto", 12, 1}, {"inet_service", 13, 2}, {"mark", 19, 4}, {"ct_dir", 27, 1}, {"icmpv6_type", 29, 1}, {"devgroup", 35, 4}, {"ifname", 41, 16},
	{connectionID, integer, 4}, {neighbourTarget, integer, 16}, {tunnelVNI, 0, 3}, {hopLimit, 0, 1}, // no set has the last two
}

func dataTypeByName(name string) (dataType, error) {
	for i := range dataTypes {
		if dataTypes[i].name == name {
			return dataTypes[i], nil
		}
	}
	return dataType{}, fmt.Errorf("unknown nftables type %q", name)
}

// Types is a data type or a concatenation of several: "ipv4_addr . inet_service".
type Types []dataType

func parseTypes(s string) (Types, error) {
	var out Types
	for part := range strings.SplitSeq(s, ".") {
		t, err := dataTypeByName(strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

// id returns the number of the type: six bits for each part.
func (t Types) id() (n uint32) {
	for _, p := range t {
		n = n<<6 | p.id
	}
	return n
}

// typesName is the reverse of id, for the attributes that hold the number and the length. Two types without a name have one
// number, and differ in their length.
func typesName(p, length []byte) string {
	if len(p) != 4 {
		return ""
	}
	if netlink.Uint32BE(p) == integer && netlink.Uint32BE(length) == 4 {
		return connectionID
	}
	var parts []string
	for n := binary.BigEndian.Uint32(p); n != 0; n >>= 6 {
		name := "unknown"
		for i := range dataTypes {
			if dataTypes[i].id == n&63 {
				name = dataTypes[i].name
			}
		}
		parts = append([]string{name}, parts...)
	}
	return strings.Join(parts, " . ")
}

// hostOrder reports whether values of the type are in host byte order.
func (t Types) hostOrder() bool {
	return len(t) == 1 && (t[0].name == "ifname" || t[0].name == "mark")
}

// size returns the length in bytes. Each part of a concatenation fills whole 32-bit words.
func (t Types) size() (n int) {
	if len(t) == 1 {
		return t[0].size
	}
	for _, p := range t {
		n += wordCount(p.size) * 4
	}
	return n
}

func wordCount(size int) int { return (size + 3) / 4 }

// Value encodes text such as "10.1.1.1 . tcp . 80".
func (t Types) Value(s string) ([]byte, error) {
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

// Format is the reverse of Value. It stops where the value is too short.
func (t Types) Format(p []byte) string {
	var parts []string
	for _, part := range t {
		if len(p) < part.size {
			break
		}
		parts = append(parts, part.format(p[:part.size]))
		size := part.size
		if len(t) > 1 {
			size = wordCount(size) * 4
		}
		p = p[min(size, len(p)):]
	}
	return strings.Join(parts, " . ")
}

func (t dataType) value(s string) ([]byte, error) {
	switch t.name {
	case "ipv4_addr", "ipv6_addr":
		a, err := netip.ParseAddr(s)
		if err == nil && len(a.AsSlice()) != t.size {
			err = fmt.Errorf("%s is not an %s", s, t.name)
		}
		return a.AsSlice(), err
	case neighbourTarget:
		return hex.DecodeString(strings.TrimPrefix(s, "0x"))
	case tunnelVNI:
		n, err := strconv.ParseUint(s, 0, 24)
		return []byte{byte(n >> 16), byte(n >> 8), byte(n)}, err
	case hopLimit:
		n, err := strconv.ParseUint(s, 10, 8)
		return []byte{byte(n)}, err
	case "ether_addr":
		return hwaddr.Parse(s)
	case "icmpv6_type":
		for _, x := range icmpv6Types() {
			if x.name == s {
				return []byte{x.number}, nil
			}
		}
		return nil, fmt.Errorf("unknown ICMPv6 type %q", s)
	case "ct_dir":
		n, ok := map[string]byte{"original": 0, "reply": 1}[s] // IP_CT_DIR_*, linux/netfilter/nf_conntrack_tuple_common.h
		if !ok {
			return nil, fmt.Errorf("unknown direction %q", s)
		}
		return []byte{n}, nil
	case "ether_type":
		n, ok := map[string]uint16{"ip": unix.ETH_P_IP, "ip6": unix.ETH_P_IPV6, "arp": unix.ETH_P_ARP}[s]
		if !ok {
			return nil, fmt.Errorf("unknown ether type %q", s)
		}
		return binary.BigEndian.AppendUint16(nil, n), nil
	case "ifname":
		v := make([]byte, t.size)
		copy(v, strings.Trim(s, `"`))
		return v, nil
	case "inet_proto":
		n, err := protoNumber(s)
		return []byte{n}, err
	case connectionID:
		n, err := strconv.ParseUint(s, 10, 32)
		return binary.BigEndian.AppendUint32(nil, uint32(n)), err
	case "inet_service":
		n, err := strconv.ParseUint(s, 10, 16)
		return binary.BigEndian.AppendUint16(nil, uint16(n)), err
	default:
		n, err := strconv.ParseUint(s, 0, 32)
		return binary.NativeEndian.AppendUint32(nil, uint32(n)), err
	}
}

func (t dataType) format(p []byte) string {
	switch t.name {
	case "ipv4_addr", "ipv6_addr":
		a, _ := netip.AddrFromSlice(p)
		return a.String()
	case neighbourTarget:
		return "0x" + hex.EncodeToString(p)
	case hopLimit:
		return fmt.Sprint(p[0])
	case "ether_addr":
		return hwaddr.Format(p)
	case "ifname":
		return netlink.Text(p)
	case "inet_proto":
		return protoName(p[0])
	case connectionID:
		return fmt.Sprint(binary.BigEndian.Uint32(p))
	case "inet_service":
		return fmt.Sprint(binary.BigEndian.Uint16(p))
	case "ct_dir":
		if p[0] < 2 {
			return [2]string{"original", "reply"}[p[0]]
		}
		return fmt.Sprint(p[0])
	case "icmpv6_type":
		for _, x := range icmpv6Types() {
			if x.number == p[0] {
				return x.name
			}
		}
		return fmt.Sprint(p[0])
	}
	return fmt.Sprint(netlink.Uint32(p))
}
