package ipam

import (
	"encoding/binary"
	"net/netip"
	"time"
)

// record contains the owner, inode and times of one address file.
type record struct {
	owner key
	addr  netip.Addr
	ino   uint64
	ctime int64 // the file's change time, in ns since 1970; compared, never ordered
	// reserved is the uptime at allocation. 0 means that another implementation allocated it, so it stays across
	// reboots.
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

// blockSize is the number of addresses that an entry of the block table covers, one bit each.
const blockSize = 256

// blockKey returns the key of an address's block.
func blockKey(n u128) key {
	n.lo &^= blockSize - 1
	return n.bytes()
}

// allocated reports whether the block's address with this last byte is allocated.
func (s *slot) allocated(low byte) bool { return s[16+low/8]&(1<<(low%8)) != 0 }

func (s *slot) setAllocated(low byte, allocated bool) {
	if allocated {
		s[16+low/8] |= 1 << (low % 8)
	} else {
		s[16+low/8] &^= 1 << (low % 8)
	}
}

// empty reports whether no address of the block is allocated.
func (s *slot) empty() bool { return [32]byte(s[16:48]) == [32]byte{} }
