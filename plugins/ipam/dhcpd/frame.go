package dhcpd

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
)

// These are the UDP ports of DHCPv4.
const (
	serverPort = 67
	clientPort = 68
)

const (
	etherLen = 14
	ipLen    = 20
	udpLen   = 8
)

// endpoint is one end of a datagram on the link.
type endpoint struct {
	mac net.HardwareAddr
	ip  netip.Addr
}

func broadcast() endpoint {
	return endpoint{net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, netip.AddrFrom4([4]byte{255, 255, 255, 255})}
}

// frame returns a client's datagram to a server as an Ethernet frame.
func frame(from, to endpoint, payload []byte) []byte {
	b := make([]byte, etherLen+ipLen+udpLen, etherLen+ipLen+udpLen+len(payload))
	copy(b, to.mac)
	copy(b[6:], from.mac)
	binary.BigEndian.PutUint16(b[12:], 0x0800)

	ip := b[etherLen : etherLen+ipLen]
	ip[0], ip[8], ip[9] = 0x45, 64, 17 // version and length, time to live, UDP
	binary.BigEndian.PutUint16(ip[2:], uint16(ipLen+udpLen+len(payload)))
	copy(ip[12:], from.ip.AsSlice())
	copy(ip[16:], to.ip.AsSlice())
	binary.BigEndian.PutUint16(ip[10:], ^fold(sum(0, ip)))

	udp := b[etherLen+ipLen:]
	binary.BigEndian.PutUint16(udp[0:], clientPort)
	binary.BigEndian.PutUint16(udp[2:], serverPort)
	binary.BigEndian.PutUint16(udp[4:], uint16(udpLen+len(payload)))
	// The pseudo header is the addresses, protocol and length. A checksum of 0 is sent as 0xffff.
	s := ^fold(sum(sum(sum(17+uint32(udpLen+len(payload)), ip[12:20]), udp), payload))
	if s == 0 {
		s = 0xffff
	}
	binary.BigEndian.PutUint16(udp[6:], s)
	return append(b, payload...)
}

// sum adds 16-bit words, RFC 1071.
func sum(s uint32, b []byte) uint32 {
	for ; len(b) > 1; b = b[2:] {
		s += uint32(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		s += uint32(b[0]) << 8
	}
	return s
}

func fold(s uint32) uint16 {
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}

var errNoDatagram = errors.New("not a DHCP datagram") // constant, never assigned

// datagram extracts a server's datagram to a client from a frame, and its sender. It ignores the UDP checksum, which
// virtual links often leave incomplete, and the source port, which RFC 2131 does not fix.
func datagram(b []byte) (payload []byte, from endpoint, err error) {
	if len(b) < etherLen+ipLen || binary.BigEndian.Uint16(b[12:]) != 0x0800 {
		return nil, from, errNoDatagram
	}
	ip := b[etherLen:]
	header, total := int(ip[0]&15)*4, int(binary.BigEndian.Uint16(ip[2:]))
	if ip[0]>>4 != 4 || header < ipLen || total < header+udpLen || total > len(ip) || ip[9] != 17 ||
		binary.BigEndian.Uint16(ip[6:])&0x3fff != 0 || fold(sum(0, ip[:header])) != 0xffff {
		return nil, from, errNoDatagram
	}
	udp := ip[header:total]
	size := int(binary.BigEndian.Uint16(udp[4:]))
	if binary.BigEndian.Uint16(udp[2:]) != clientPort || size < udpLen || size > len(udp) {
		return nil, from, errNoDatagram
	}
	from = endpoint{append(net.HardwareAddr(nil), b[6:12]...), netip.AddrFrom4([4]byte(ip[12:16]))}
	return udp[udpLen:size], from, nil
}
