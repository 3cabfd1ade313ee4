package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// The file begins with a line that says what it is. Records follow: a header of 12
// bytes (length of the body, its CRC, the CRC of these two), and the body: the
// store's revision after it, its kind, and changes. The first record is a snapshot:
// everything there is; each of the others is a transaction.
const (
	magic      = "fairlead store 1\n"
	headerSize = 12
	maxBody    = 1 << 30 // bytes
)

// The kinds of records.
const (
	kindTransaction = 0
	kindSnapshot    = 1
)

// errTorn is the beginning of a record whose end is not there.
var errTorn = errors.New("the record is cut off") // a constant; nothing assigns it

// record is what one write appended.
type record struct {
	kind     byte
	revision int64
	changes  []change
}

// change is a key that was written, or deleted.
type change struct {
	Entry
	deleted bool
}

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

func (r record) encode() []byte {
	b := make([]byte, headerSize)
	b = binary.AppendUvarint(b, uint64(r.revision))
	b = append(b, r.kind)
	b = binary.AppendUvarint(b, uint64(len(r.changes)))
	for _, c := range r.changes {
		b = appendBytes(b, []byte(c.Key))
		if c.deleted {
			b = append(b, 1)
			continue
		}
		b = append(b, 0)
		b = binary.AppendUvarint(b, uint64(c.Revision))
		b = appendBytes(b, c.Value)
	}
	le := binary.LittleEndian
	le.PutUint32(b[0:], uint32(len(b)-headerSize))
	le.PutUint32(b[4:], crc32.Checksum(b[headerSize:], castagnoli()))
	le.PutUint32(b[8:], crc32.Checksum(b[:8], castagnoli()))
	return b
}

func appendBytes(b, data []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(data))), data...)
}

// next reads the record at the beginning of b and returns how long it is. What is
// no whole record is errTorn.
func next(b []byte) (r record, size int, err error) {
	if len(b) < headerSize {
		return r, 0, errTorn
	}
	le := binary.LittleEndian
	n := int64(le.Uint32(b))
	if le.Uint32(b[8:]) != crc32.Checksum(b[:8], castagnoli()) || n > maxBody || headerSize+n > int64(len(b)) {
		return r, 0, errTorn
	}
	body := b[headerSize : headerSize+n]
	if le.Uint32(b[4:]) != crc32.Checksum(body, castagnoli()) {
		return r, 0, errTorn
	}
	r, err = decodeBody(body)
	return r, headerSize + int(n), err
}

// later tells whether a whole record begins anywhere in b: then what is before it
// was not cut off by a kill, which only the last one can be.
func later(b []byte) bool {
	for i := range b {
		if len(b)-i < headerSize {
			return false
		}
		if _, _, err := next(b[i:]); err == nil {
			return true
		}
	}
	return false
}

func decodeBody(b []byte) (r record, err error) {
	d := decoder{b: b}
	r.revision = d.number()
	r.kind = d.byte()
	n := d.number()
	for i := int64(0); i < n && d.err == nil; i++ {
		c := change{}
		c.Key = string(d.bytes())
		c.deleted = d.byte() != 0
		if !c.deleted {
			c.Revision = d.number()
			c.Value = append([]byte{}, d.bytes()...)
		}
		r.changes = append(r.changes, c)
	}
	if d.err == nil && (len(d.b) > 0 || r.kind > kindSnapshot) {
		d.err = fmt.Errorf("a record of kind %d with %d bytes too many: it was written by a newer Fairlead", r.kind, len(d.b))
	}
	return r, d.err
}

// decoder reads a body; after an error it reads nothing more.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) number() int64 {
	n, size := binary.Uvarint(d.b)
	if size <= 0 || n > 1<<62 {
		d.fail()
		return 0
	}
	d.b = d.b[size:]
	return int64(n)
}

func (d *decoder) byte() byte {
	if len(d.b) == 0 {
		d.fail()
		return 0
	}
	c := d.b[0]
	d.b = d.b[1:]
	return c
}

func (d *decoder) bytes() []byte {
	n := d.number()
	if n > int64(len(d.b)) {
		d.fail()
		return nil
	}
	data := d.b[:n]
	d.b = d.b[n:]
	return data
}

func (d *decoder) fail() {
	d.b = nil
	if d.err == nil {
		d.err = errors.New("a record with a right checksum cannot be read")
	}
}
