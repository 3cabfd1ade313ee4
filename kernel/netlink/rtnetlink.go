package netlink

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// LinkMessage starts the body of a message about a link: struct ifinfomsg, rtnetlink(7).
func LinkMessage(index int, flags, change uint32) Buffer {
	b := make(Buffer, 0, 256)
	b = append(b, unix.AF_UNSPEC, 0, 0, 0)
	b = binary.NativeEndian.AppendUint32(b, uint32(index))
	b = binary.NativeEndian.AppendUint32(b, flags)
	return binary.NativeEndian.AppendUint32(b, change)
}

// LocalAddr returns the link's own address in a message about an address. On a point-to-point link, IFA_ADDRESS is the
// peer's address.
func LocalAddr(m []byte) netip.Addr {
	p := m[unix.SizeofIfAddrmsg:]
	if ip := Addr(Attr(p, unix.IFA_LOCAL)); ip.IsValid() {
		return ip
	}
	return Addr(Attr(p, unix.IFA_ADDRESS))
}

// AddrFamily returns AF_INET or AF_INET6.
func AddrFamily(a netip.Addr) byte {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}
