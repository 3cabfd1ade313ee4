package ipam

import (
	"encoding/binary"
	"net/netip"
	"time"
)

// record is what the index knows of an address file.
type record struct {
	owner key
	addr  netip.Addr
	ino   uint64
	ctime int64 // the file's change time, in ns since 1970; compared, never ordered
	// reserved is when the address was given, since the machine started; 0:
	// not by us, so it stays whatever happens to the machine.
	reserved time.Duration
}

func (r record) slot() (s slot) {
	copy(s[:16], r.owner[:])
	addr := r.addr.As16()
	copy(s[16:32], addr[:])
	binary.LittleEndian.PutUint64(s[32:], r.ino)
	binary.LittleEndian.PutUint64(s[40:], uint64(r.ctime))
	binary.LittleEndian.PutUint64(s[48:], uint64(r.reserved))
	return s
}

func (s *slot) record() record {
	return record{
		owner:    s.key(),
		addr:     netip.AddrFrom16([16]byte(s[16:32])).Unmap(),
		ino:      binary.LittleEndian.Uint64(s[32:]),
		ctime:    int64(binary.LittleEndian.Uint64(s[40:])),
		reserved: time.Duration(binary.LittleEndian.Uint64(s[48:])),
	}
}

// blockSize is how many addresses an entry of the other table covers: which of
// them are held is 256 bits.
const blockSize = 256

// blockKey is the key of the block that an address lies in.
func blockKey(n u128) key {
	n.lo &^= blockSize - 1
	return n.bytes()
}

// held tells whether an address of the block is held, by its last byte.
func (s *slot) held(low byte) bool { return s[16+low/8]&(1<<(low%8)) != 0 }

func (s *slot) hold(low byte, held bool) {
	if held {
		s[16+low/8] |= 1 << (low % 8)
	} else {
		s[16+low/8] &^= 1 << (low % 8)
	}
}

// empty tells whether no address of the block is held.
func (s *slot) empty() bool { return [32]byte(s[16:48]) == [32]byte{} }
