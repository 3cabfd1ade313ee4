package ipam

import (
	"encoding/binary"
	"net/netip"
)

// u128 is an address as a number; IPv4 is in its IPv6-mapped form.
type u128 struct{ hi, lo uint64 }

func number(a netip.Addr) u128 {
	b := a.As16()
	return u128{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
}

func (n u128) addr() netip.Addr {
	b := n.bytes()
	return netip.AddrFrom16(b).Unmap()
}

func (n u128) bytes() (b [16]byte) {
	binary.BigEndian.PutUint64(b[:8], n.hi)
	binary.BigEndian.PutUint64(b[8:], n.lo)
	return b
}

func (n u128) add(d uint64) u128 {
	sum := u128{n.hi, n.lo + d}
	if sum.lo < n.lo {
		sum.hi++
	}
	return sum
}

func (n u128) less(m u128) bool { return n.hi < m.hi || n.hi == m.hi && n.lo < m.lo }

// LastOf returns the last address of a prefix.
func LastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	last, _ := netip.AddrFromSlice(b)
	return last
}
