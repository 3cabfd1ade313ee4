package netlink

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Buffer builds the body of a message. Its methods append one attribute each. Numbers are in
// host byte order; the methods whose name ends in BE write network byte order, which
// nftables wants.
type Buffer []byte

func (b *Buffer) pad() {
	for len(*b)%4 != 0 {
		*b = append(*b, 0)
	}
}

// Bytes appends an attribute with the given value.
func (b *Buffer) Bytes(typ uint16, v []byte) {
	*b = binary.NativeEndian.AppendUint16(*b, uint16(4+len(v)))
	*b = binary.NativeEndian.AppendUint16(*b, typ)
	*b = append(*b, v...)
	b.pad()
}

// Uint8 appends a number of 8 bits.
func (b *Buffer) Uint8(typ uint16, v uint8) { b.Bytes(typ, []byte{v}) }

// Uint16 appends a number of 16 bits.
func (b *Buffer) Uint16(typ uint16, v uint16) {
	b.Bytes(typ, binary.NativeEndian.AppendUint16(nil, v))
}

// Uint32 appends a number of 32 bits.
func (b *Buffer) Uint32(typ uint16, v uint32) {
	b.Bytes(typ, binary.NativeEndian.AppendUint32(nil, v))
}

// Uint64 appends a number of 64 bits.
func (b *Buffer) Uint64(typ uint16, v uint64) {
	b.Bytes(typ, binary.NativeEndian.AppendUint64(nil, v))
}

// Uint16BE appends a number of 16 bits in network byte order.
func (b *Buffer) Uint16BE(typ uint16, v uint16) {
	b.Bytes(typ, binary.BigEndian.AppendUint16(nil, v))
}

// Uint32BE appends a number of 32 bits in network byte order.
func (b *Buffer) Uint32BE(typ uint16, v uint32) {
	b.Bytes(typ, binary.BigEndian.AppendUint32(nil, v))
}

// String appends text that ends with a zero byte.
func (b *Buffer) String(typ uint16, v string) { b.Bytes(typ, append([]byte(v), 0)) }

// Addr appends an IP address of 4 or 16 bytes.
func (b *Buffer) Addr(typ uint16, v netip.Addr) { b.Bytes(typ, v.AsSlice()) }

// Nest appends an attribute whose value f builds.
func (b *Buffer) Nest(typ uint16, f func(*Buffer)) {
	start := len(*b)
	*b = append(*b, 0, 0, 0, 0)
	f(b)
	binary.NativeEndian.PutUint16((*b)[start:], uint16(len(*b)-start))
	binary.NativeEndian.PutUint16((*b)[start+2:], typ|unix.NLA_F_NESTED)
}

// EachAttr calls f for each attribute. A malformed attribute ends the walk.
func EachAttr(p []byte, f func(typ uint16, v []byte)) {
	for {
		typ, v, rest := NextAttr(p)
		if v == nil {
			return
		}
		f(typ, v)
		p = rest
	}
}

// NextAttr returns the first attribute and the bytes after it. v and rest are nil if there is none, or if it is
// malformed.
func NextAttr(p []byte) (typ uint16, v, rest []byte) {
	if len(p) < 4 {
		return 0, nil, nil
	}
	n := int(binary.NativeEndian.Uint16(p))
	if n < 4 || n > len(p) {
		return 0, nil, nil
	}
	return binary.NativeEndian.Uint16(p[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER), p[4:n:n], p[min((n+3)&^3, len(p)):]
}

// Attr returns the value of the first attribute of a type, or nil.
func Attr(p []byte, typ uint16) []byte {
	for {
		t, v, rest := NextAttr(p)
		if v == nil || t == typ {
			return v
		}
		p = rest
	}
}

// Uint64 returns a number of 64 bits, or 0 if v is too short.
func Uint64(v []byte) uint64 {
	if len(v) < 8 {
		return 0
	}
	return binary.NativeEndian.Uint64(v)
}

// Uint32 returns a number of 32 bits, or 0 if v is too short.
func Uint32(v []byte) uint32 {
	if len(v) < 4 {
		return 0
	}
	return binary.NativeEndian.Uint32(v)
}

// Uint32BE returns a number of 32 bits in network byte order, or 0 if v is too short.
func Uint32BE(v []byte) uint32 {
	if len(v) < 4 {
		return 0
	}
	return binary.BigEndian.Uint32(v)
}

// Uint16 returns a number of 16 bits, or 0 if v is too short.
func Uint16(v []byte) uint16 {
	if len(v) < 2 {
		return 0
	}
	return binary.NativeEndian.Uint16(v)
}

// Uint8 returns a number of 8 bits, or 0 if v is empty.
func Uint8(v []byte) uint8 {
	if len(v) < 1 {
		return 0
	}
	return v[0]
}

// Text returns text without the zero byte that ends it.
func Text(v []byte) string {
	for i, c := range v {
		if c == 0 {
			return string(v[:i])
		}
	}
	return string(v)
}

// Addr returns an IP address, or the zero Addr if v has neither 4 nor 16 bytes.
func Addr(v []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(v)
	return a
}
