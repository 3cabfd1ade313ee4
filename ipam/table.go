package ipam

import (
	"encoding/binary"
	"math/bits"

	"github.com/fairlead/fairlead/internal/checksum"
)

// slotSize is the size of an entry in bytes: an entry never crosses a page.
const slotSize = 64

// slot is a table entry: a key of 16 bytes, 40 bytes of contents, one byte that marks it as used, and a checksum. An
// empty slot is all zero.
type slot [slotSize]byte

const (
	slotUsed = 56
	slotSum  = 60
)

func (s *slot) used() bool { return s[slotUsed] != 0 }

func (s *slot) key() key { return key(s[:16]) }

// seal marks the slot as used and sets its checksum.
func (s *slot) seal() {
	s[slotUsed] = 1
	binary.LittleEndian.PutUint32(s[slotSum:], checksum.Of(s[:slotSum]))
}

// valid reports whether the slot is used and its checksum correct.
func (s *slot) valid() bool {
	return s.used() && binary.LittleEndian.Uint32(s[slotSum:]) == checksum.Of(s[:slotSum])
}

// table is a hash table in the index: open addressing, linear probing. Several entries may have the same key.
type table struct {
	pages *pages
	base  int64  // offset of the first slot
	slots uint32 // a power of two
}

func (t *table) offset(i uint32) int64 { return t.base + int64(i)*slotSize }

func (t *table) get(i uint32) (s slot, err error) {
	b, err := t.pages.at(t.offset(i), slotSize)
	if err == nil {
		copy(s[:], b)
	}
	return s, err
}

// home returns the first slot of a key's entries. The multiplication spreads consecutive keys, such as blocks of
// addresses.
func (t *table) home(k key) uint32 {
	n := binary.LittleEndian.Uint64(k[:8]) ^ binary.BigEndian.Uint64(k[8:])
	return uint32(n * 0x9e3779b97f4a7c15 >> (65 - bits.Len32(t.slots)))
}

// each calls f with every entry of a key until f returns stop. It returns the position where it stopped, or the empty
// slot after the last entry.
func (t *table) each(k key, f func(i uint32, s slot) (stop bool, err error)) (uint32, error) {
	i := t.home(k)
	for range t.slots {
		s, err := t.get(i)
		if err != nil || !s.used() {
			return i, err
		}
		if !s.valid() {
			return i, errInvalidIndex
		}
		if s.key() == k {
			if stop, err := f(i, s); stop || err != nil {
				return i, err
			}
		}
		i = (i + 1) & (t.slots - 1)
	}
	return 0, errInvalidIndex
}

// insert writes an entry to the first empty slot.
func (t *table) insert(s slot) error {
	i, err := t.each(s.key(), func(uint32, slot) (bool, error) { return false, nil })
	if err != nil {
		return err
	}
	return t.set(i, s)
}

func (t *table) set(i uint32, s slot) error {
	s.seal()
	return t.pages.put(t.offset(i), s[:])
}

// remove empties a slot and moves later entries up, so that all can still be found from their home. It copies an entry
// before it empties the old slot: a kill in between duplicates the entry and loses nothing.
func (t *table) remove(hole uint32) error {
	mask := t.slots - 1
	i := hole
	for range t.slots {
		i = (i + 1) & mask
		s, err := t.get(i)
		if err != nil {
			return err
		}
		if !s.used() {
			break
		}
		if (i-t.home(s.key()))&mask >= (i-hole)&mask {
			if err := t.set(hole, s); err != nil {
				return err
			}
			hole = i
		}
	}
	return t.pages.put(t.offset(hole), make([]byte, slotSize))
}
