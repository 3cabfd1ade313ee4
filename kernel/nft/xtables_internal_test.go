package nft

import (
	"encoding/binary"
	"testing"
)

// TestConntrackStates checks that a rule of iptables is understood only if it matches nothing but states.
func TestConntrackStates(t *testing.T) {
	t.Parallel()
	info := func(size int, flags, inverted uint16) []byte {
		b := make([]byte, 200)
		binary.NativeEndian.PutUint16(b[146:], flags) // struct xt_conntrack_mtinfo3 of linux/netfilter/xt_conntrack.h
		binary.NativeEndian.PutUint16(b[148:], inverted)
		binary.NativeEndian.PutUint16(b[150:], 6)
		return b[:size]
	}
	for _, c := range []struct {
		what  string
		info  []byte
		op    int
		known bool
	}{
		{"states", info(160, 1, 0), CmpNotEqual, true},
		{"the shortest", info(154, 1, 0), CmpNotEqual, true},
		{"no states", info(160, 1, 1), CmpEqual, true},
		{"a short one", info(153, 1, 0), 0, false},
		{"a protocol", info(160, 2, 0), 0, false},
		{"states and a protocol", info(160, 3, 0), 0, false},
		{"nothing", nil, 0, false},
	} {
		steps := xtConntrack(c.info)
		if (steps != nil) != c.known || c.known && (steps[0].Op != c.op || binary.NativeEndian.Uint32(steps[0].Mask) != 6) {
			t.Errorf("%s: %+v", c.what, steps)
		}
	}
}
