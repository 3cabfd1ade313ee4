package netlink

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// buf builds one netlink payload. Numbers are in host order unless a name says
// otherwise (nftables wants network order). Source: netlink(7).
type Buffer []byte

func (b *Buffer) pad() {
	for len(*b)%4 != 0 {
		*b = append(*b, 0)
	}
}

func (b *Buffer) Bytes(typ uint16, v []byte) {
	*b = binary.NativeEndian.AppendUint16(*b, uint16(4+len(v)))
	*b = binary.NativeEndian.AppendUint16(*b, typ)
	*b = append(*b, v...)
	b.pad()
}

func (b *Buffer) Uint8(typ uint16, v uint8)   { b.Bytes(typ, []byte{v}) }
func (b *Buffer) Uint16(typ uint16, v uint16) { b.Bytes(typ, binary.NativeEndian.AppendUint16(nil, v)) }
func (b *Buffer) Uint32(typ uint16, v uint32) { b.Bytes(typ, binary.NativeEndian.AppendUint32(nil, v)) }

func (b *Buffer) Uint64(typ uint16, v uint64) { b.Bytes(typ, binary.NativeEndian.AppendUint64(nil, v)) }

func (b *Buffer) Uint16BE(typ uint16, v uint16) { b.Bytes(typ, binary.BigEndian.AppendUint16(nil, v)) }
func (b *Buffer) Uint32BE(typ uint16, v uint32) { b.Bytes(typ, binary.BigEndian.AppendUint32(nil, v)) }

func (b *Buffer) String(typ uint16, v string)   { b.Bytes(typ, append([]byte(v), 0)) }
func (b *Buffer) Addr(typ uint16, v netip.Addr) { b.Bytes(typ, v.AsSlice()) }

// nest appends an attribute whose payload f builds.
func (b *Buffer) Nest(typ uint16, f func(*Buffer)) {
	start := len(*b)
	*b = append(*b, 0, 0, 0, 0)
	f(b)
	binary.NativeEndian.PutUint16((*b)[start:], uint16(len(*b)-start))
	binary.NativeEndian.PutUint16((*b)[start+2:], typ|unix.NLA_F_NESTED)
}

// attrs walks a payload's attributes; a malformed tail ends the walk.
func EachAttr(p []byte, f func(typ uint16, v []byte)) {
	for len(p) >= 4 {
		n := int(binary.NativeEndian.Uint16(p))
		if n < 4 || n > len(p) {
			return
		}
		f(binary.NativeEndian.Uint16(p[2:])&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER), p[4:n])
		p = p[min((n+3)&^3, len(p)):]
	}
}

// attr returns the first attribute of a type, or nil.
func Attr(p []byte, typ uint16) (found []byte) {
	EachAttr(p, func(t uint16, v []byte) {
		if t == typ && found == nil {
			found = v
		}
	})
	return found
}

// The readers below answer zero for a payload that is too short.

func Uint32(v []byte) uint32 {
	if len(v) < 4 {
		return 0
	}
	return binary.NativeEndian.Uint32(v)
}

func Uint64(v []byte) uint64 {
	if len(v) < 8 {
		return 0
	}
	return binary.NativeEndian.Uint64(v)
}

func Uint16(v []byte) uint16 {
	if len(v) < 2 {
		return 0
	}
	return binary.NativeEndian.Uint16(v)
}

func Uint8(v []byte) uint8 {
	if len(v) < 1 {
		return 0
	}
	return v[0]
}

func Text(v []byte) string {
	for i, c := range v {
		if c == 0 {
			return string(v[:i])
		}
	}
	return string(v)
}

func Addr(v []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(v)
	return a
}

func Uint32BE(v []byte) uint32 {
	if len(v) < 4 {
		return 0
	}
	return binary.BigEndian.Uint32(v)
}
