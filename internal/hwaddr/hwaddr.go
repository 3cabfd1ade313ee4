// Package hwaddr reads and writes hardware addresses (MAC) of six bytes. It does not import
// package net, which would slow down the start of every plugin.
package hwaddr

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"net/netip"
)

// Parse reads a hardware address of six bytes, with colons, dashes, or as three groups with dots.
func Parse(s string) ([]byte, error) {
	if len(s) == 14 && s[4] == '.' && s[9] == '.' {
		raw, err := hex.DecodeString(s[:4] + s[5:9] + s[10:])
		if err != nil {
			return nil, errInvalid(s)
		}
		return raw, nil
	}
	raw := make([]byte, 6)
	for i := range raw {
		at := 3 * i
		if len(s) != 17 || i > 0 && s[at-1] != ':' && s[at-1] != '-' {
			return nil, errInvalid(s)
		}
		if _, err := hex.Decode(raw[i:i+1], []byte(s[at:at+2])); err != nil {
			return nil, errInvalid(s)
		}
	}
	return raw, nil
}

func errInvalid(s string) error {
	return fmt.Errorf("%q is not a hardware address: want six bytes, like 02:00:00:00:00:01", s)
}

// Canonical returns a hardware address in the form in which the kernel's addresses are shown.
func Canonical(s string) (string, error) {
	raw, err := Parse(s)
	return Format(raw), err
}

// IsUnicast reports whether an address can be the address of one interface: it is no group's and not zero.
func IsUnicast(raw []byte) bool {
	return raw[0]&1 == 0 && !bytes.Equal(raw, make([]byte, len(raw)))
}

// Format writes a hardware address with colons, in lower case.
func Format(raw []byte) string {
	b := make([]byte, 0, 3*len(raw))
	for i, c := range raw {
		if i > 0 {
			b = append(b, ':')
		}
		b = hex.AppendEncode(b, []byte{c})
	}
	return string(b)
}

// LinkLocal returns the link-local address that the kernel derives from a hardware address by default (RFC 4291,
// appendix A). It returns the unspecified address for anything that is not a hardware address.
func LinkLocal(mac string) netip.Addr {
	hw, err := Parse(mac)
	if err != nil {
		return netip.IPv6Unspecified()
	}
	return netip.AddrFrom16([16]byte{0xfe, 0x80, 8: hw[0] ^ 2, hw[1], hw[2], 0xff, 0xfe, hw[3], hw[4], hw[5]})
}
