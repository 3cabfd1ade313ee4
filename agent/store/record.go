package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// The file begins with a magic line. Records follow: a 12-byte header (length of the body, CRC of the body, CRC of
// these two), then the body: the store's revision after the record, its kind, and the changes. The first record is a
// snapshot of everything; each other record is a transaction.
const (
	magic      = "fairlead store 1\n"
	headerSize = 12
	maxBody    = 1 << 30 // bytes
)

// Kinds of records.
const (
	kindTransaction = 0
	kindSnapshot    = 1
)

// errTorn means that a record is incomplete.
var errTorn = errors.New("the record is incomplete") // constant

// record is what one write appends.
type record struct {
	kind     byte
	revision int64
	changes  []change
}

// change is a written or deleted key.
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

// next decodes the record at the beginning of b and returns its size. An incomplete record is errTorn.
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

// later reports whether a whole record begins anywhere in b. Then the damage before it is not from a kill, which can
// only truncate the last record.
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
		d.err = fmt.Errorf("a record of kind %d has %d extra bytes: a newer version of Fairlead wrote it", r.kind, len(d.b))
	}
	return r, d.err
}

// decoder decodes a body. It stops at the first error.
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
		d.err = errors.New("cannot decode a record with a valid checksum")
	}
}
