package nflog

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// Packet is a packet that a rule has sent to the group.
type Packet struct {
	Time     time.Time
	Prefix   string // of the rule
	Src, Dst netip.Addr
	Protocol string // "TCP", "UDP", "SCTP", "ICMP", or a number
	// Ports of TCP, UDP and SCTP. They are 0 for others, and for a fragment that is not the first one.
	SrcPort, DstPort uint16

	number uint32 // counts the listener's packets
}

// Attributes of a packet.
const (
	attrTimestamp = 3
	attrPayload   = 9
	attrPrefix    = 10
	attrNumber    = 12
)

var errNoPacket = errors.New("not an IP packet of a log group") // a constant; nothing assigns it

const packetType = ulog // NFULNL_MSG_PACKET is 0

// parse decodes a message of the kernel.
func parse(m netlink.Message) (*Packet, error) {
	if m.Type != packetType || len(m.Body) < 4 { // struct nfgenmsg
		return nil, errNoPacket
	}
	attrs := m.Body[4:]
	p := &Packet{Time: time.Now(), Prefix: netlink.Text(netlink.Attr(attrs, attrPrefix)), number: netlink.Uint32BE(netlink.Attr(attrs, attrNumber))}
	if at := netlink.Attr(attrs, attrTimestamp); len(at) == 16 {
		p.Time = time.Unix(int64(binary.BigEndian.Uint64(at)), int64(binary.BigEndian.Uint64(at[8:]))*int64(time.Microsecond))
	}
	return p, p.headers(netlink.Attr(attrs, attrPayload))
}

// headers reads the packet from its IP header on. What is cut off is missing.
func (p *Packet) headers(b []byte) error {
	if len(b) == 0 {
		return errNoPacket
	}
	var protocol byte
	var first bool
	switch {
	case b[0]>>4 == 4 && len(b) >= 20:
		p.Src, p.Dst = netip.AddrFrom4([4]byte(b[12:])), netip.AddrFrom4([4]byte(b[16:]))
		const offset = 0x1fff
		protocol, first = b[9], binary.BigEndian.Uint16(b[6:])&offset == 0
		b = b[min(int(b[0]&15)*4, len(b)):]
	case b[0]>>4 == 6 && len(b) >= 40:
		p.Src, p.Dst = netip.AddrFrom16([16]byte(b[8:])), netip.AddrFrom16([16]byte(b[24:]))
		protocol, first, b = extensions(b[6], b[40:])
	default:
		return errNoPacket
	}
	p.Protocol = protocolName(protocol)
	if hasPorts := protocol == unix.IPPROTO_TCP || protocol == unix.IPPROTO_UDP || protocol == unix.IPPROTO_SCTP; hasPorts && first && len(b) >= 4 {
		p.SrcPort, p.DstPort = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	}
	return nil
}

// extensions skips the extension headers of IPv6, RFC 8200, section 4. It returns the protocol above, whether the packet
// has its header, and what follows.
func extensions(protocol byte, b []byte) (_ byte, first bool, rest []byte) {
	for len(b) >= 8 {
		size := int(b[1])*8 + 8
		switch protocol {
		case unix.IPPROTO_HOPOPTS, unix.IPPROTO_ROUTING, unix.IPPROTO_DSTOPTS:
		case unix.IPPROTO_AH:
			size = int(b[1])*4 + 8 // RFC 4302, section 2.2
		case unix.IPPROTO_FRAGMENT:
			if size = 8; binary.BigEndian.Uint16(b[2:])&^7 != 0 {
				return b[0], false, nil
			}
		default:
			return protocol, true, b
		}
		protocol, b = b[0], b[min(size, len(b)):]
	}
	return protocol, true, b
}

func protocolName(n byte) string {
	switch n {
	case unix.IPPROTO_TCP:
		return "TCP"
	case unix.IPPROTO_UDP:
		return "UDP"
	case unix.IPPROTO_SCTP:
		return "SCTP"
	case unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6:
		return "ICMP"
	}
	return strconv.Itoa(int(n))
}
