package kerneltest

import (
	"encoding/binary"
	"net/netip"
)

// IPv4 returns a packet without options and with a valid checksum: RFC 791, section 3.1.
func IPv4(src, dst netip.Addr, proto byte, payload []byte) []byte {
	const size = 20
	b := make([]byte, size, size+len(payload))
	b[0], b[8], b[9] = 0x45, 64, proto
	binary.BigEndian.PutUint16(b[2:], uint16(size+len(payload)))
	copy(b[12:], src.AsSlice())
	copy(b[16:], dst.AsSlice())
	binary.BigEndian.PutUint16(b[10:], Checksum(b))
	return append(b, payload...)
}

// Checksum returns the Internet checksum of parts with an even number of bytes each: RFC 1071.
func Checksum(parts ...[]byte) uint16 {
	sum := uint32(0)
	for _, b := range parts {
		for i := 0; i < len(b); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(b[i:]))
		}
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}
