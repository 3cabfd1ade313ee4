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
	sum := uint32(0)
	for i := 0; i < size; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	binary.BigEndian.PutUint16(b[10:], ^uint16(sum))
	return append(b, payload...)
}
