package ipam

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"time"

	"github.com/fairlead/fairlead/internal/checksum"
)

// errInvalidIndex means that the index cannot be used and must be rebuilt.
var errInvalidIndex = errors.New("the address index is invalid")

const (
	magic      = "fairipam2\n"
	headerSize = 192 // bytes
)

// header is the first page of the index.
type header struct {
	boot    key        // hash of the boot ID under which it was written
	clean   bool       // no change is in progress
	dir     dirState   // state of the directory after our last change
	last    key        // hash of all last_reserved_ip.N after our last change
	tables  [2]extent  // records, blocks
	pending pendingAdd // the address file being created
	spares  uint32     // files of released addresses, kept for reuse
}

// extent has a table's size and number of entries.
type extent struct{ slots, used uint32 }

// dirState shows whether anyone changed the directory.
type dirState struct {
	ino   uint64
	ctime int64 // ns
	mtime int64 // ns; we set it to a past time, which no other change has
}

// pendingAdd is an address file about to be linked into place. If the process is killed before the record is written,
// the inode and owner show that the file is ours. The inode inPlace stands for any.
type pendingAdd struct {
	owner key
	addr  netip.Addr // zero: none
	ino   uint64
	since time.Duration // uptime at creation; 0: written by an older version
}

func (h *header) encode() []byte {
	b := append(make([]byte, 0, headerSize), magic...)
	b = append(b, h.boot[:]...)
	b = append(b, b2i(h.clean))
	le := binary.LittleEndian
	b = le.AppendUint64(b, h.dir.ino)
	b = le.AppendUint64(b, uint64(h.dir.ctime))
	b = le.AppendUint64(b, uint64(h.dir.mtime))
	b = append(b, h.last[:]...)
	for _, t := range h.tables {
		b = le.AppendUint32(b, t.slots)
		b = le.AppendUint32(b, t.used)
	}
	b = append(b, h.pending.owner[:]...)
	b = append(b, b2i(h.pending.addr.IsValid()))
	addr := number(or(h.pending.addr, netip.IPv6Unspecified())).bytes()
	b = append(b, addr[:]...)
	b = le.AppendUint64(b, h.pending.ino)
	b = le.AppendUint64(b, uint64(h.pending.since))
	b = le.AppendUint32(b, h.spares)
	b = b[:headerSize-4]
	return le.AppendUint32(b, checksum.Of(b))
}

func decodeHeader(b []byte) (h header, err error) {
	le := binary.LittleEndian
	if len(b) < headerSize || string(b[:len(magic)]) != magic ||
		le.Uint32(b[headerSize-4:]) != checksum.Of(b[:headerSize-4]) {
		return header{}, errInvalidIndex
	}
	next := func(n int) []byte { defer func() { b = b[n:] }(); return b[:n] }
	next(len(magic))
	h.boot = key(next(16))
	h.clean = next(1)[0] != 0
	h.dir.ino = le.Uint64(next(8))
	h.dir.ctime = int64(le.Uint64(next(8)))
	h.dir.mtime = int64(le.Uint64(next(8)))
	h.last = key(next(16))
	for i := range h.tables {
		h.tables[i] = extent{le.Uint32(next(4)), le.Uint32(next(4))}
	}
	h.pending.owner = key(next(16))
	valid, addr := next(1)[0] != 0, netip.AddrFrom16([16]byte(next(16))).Unmap()
	if valid {
		h.pending.addr = addr
	}
	h.pending.ino = le.Uint64(next(8))
	h.pending.since = time.Duration(le.Uint64(next(8)))
	h.spares = le.Uint32(next(4)) // 0: written by an older version
	return h, h.check()
}

// check rejects impossible sizes: a table has a power of two of slots, some of them empty.
func (h *header) check() error {
	for _, t := range h.tables {
		if t.slots == 0 || t.slots&(t.slots-1) != 0 || t.slots > 1<<28 || t.used >= t.slots {
			return errInvalidIndex
		}
	}
	if h.spares > maxSpares {
		return errInvalidIndex
	}
	return nil
}

func b2i(b bool) byte {
	if b {
		return 1
	}
	return 0
}

func or(a, b netip.Addr) netip.Addr {
	if a.IsValid() {
		return a
	}
	return b
}
