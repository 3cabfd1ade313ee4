package netlink

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// The headers and fields of rtnetlink(7) that several packages need.

// ifinfo is struct ifinfomsg, rtnetlink(7).
func LinkMessage(index int, flags, change uint32) Buffer {
	b := make(Buffer, 0, 256)
	b = append(b, unix.AF_UNSPEC, 0, 0, 0)
	b = binary.NativeEndian.AppendUint32(b, uint32(index))
	b = binary.NativeEndian.AppendUint32(b, flags)
	return binary.NativeEndian.AppendUint32(b, change)
}

// ownAddress is the link's own address in an RTM_NEWADDR: of a point-to-point
// link IFA_ADDRESS is the peer's.
func LocalAddr(m []byte) netip.Addr {
	p := m[unix.SizeofIfAddrmsg:]
	if ip := Addr(Attr(p, unix.IFA_LOCAL)); ip.IsValid() {
		return ip
	}
	return Addr(Attr(p, unix.IFA_ADDRESS))
}

// family is AF_INET or AF_INET6, by an address.
func AddrFamily(a netip.Addr) byte {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}
