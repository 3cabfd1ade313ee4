package ipam

import (
	"fmt"
	"os"
)

// index is the cache next to the directory: a header, a table of records by owner, and a table of blocks of allocated
// addresses.
type index struct {
	pages   *pages
	header  header
	records table
	blocks  table
}

// openIndex reads the header of an index; invalid contents are errInvalidIndex.
func openIndex(path string) (*index, error) {
	f, err := openFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	p := &pages{file: f, cache: map[int64][]byte{}}
	first, err := p.at(0, headerSize)
	if err != nil {
		f.Close()
		return nil, err
	}
	h, err := decodeHeader(first)
	if err == nil {
		err = checkSize(f, h)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return newIndex(p, h), nil
}

func checkSize(f *os.File, h header) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() != indexSize(h) {
		return errInvalidIndex
	}
	return nil
}

func indexSize(h header) int64 {
	return pageSize + slotSize*(int64(h.tables[0].slots)+int64(h.tables[1].slots))
}

func newIndex(p *pages, h header) *index {
	x := &index{pages: p, header: h}
	x.records = table{p, pageSize, h.tables[0].slots}
	x.blocks = table{p, pageSize + slotSize*int64(h.tables[0].slots), h.tables[1].slots}
	return x
}

// buildIndex builds an index of records in memory, with room for as many again.
func buildIndex(h header, records []record) (*index, error) {
	blocks := map[key]bool{}
	for _, r := range records {
		blocks[blockKey(number(r.addr))] = true
	}
	h.tables = [2]extent{{slots: roomFor(len(records))}, {slots: roomFor(len(blocks))}}
	x := newIndex(&pages{image: make([]byte, indexSize(h))}, h)
	for _, r := range records {
		if err := x.add(r); err != nil {
			return nil, err
		}
	}
	return x, nil
}

// roomFor returns the number of slots for a table of n entries.
func roomFor(n int) uint32 {
	slots := uint32(pageSize / slotSize)
	for int(slots) < 2*n {
		slots *= 2
	}
	return slots
}

// store writes an index that was built in memory to path, replacing the old one.
func (x *index) store(path string) error {
	if err := x.putHeader(); err != nil {
		return err
	}
	f, err := openFile(path+".new", os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("store the address index: %w", err)
	}
	if _, err = f.Write(x.pages.image); err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		f.Close()
		os.Remove(path + ".new")
		return fmt.Errorf("store the address index: %w", err)
	}
	x.pages.file = f
	return nil
}

func (x *index) putHeader() error { return x.pages.put(0, x.header.encode()) }

// full reports whether one more entry would make a table slow; it is then rebuilt at twice the size.
func (x *index) full() bool {
	for _, t := range x.header.tables {
		if uint64(t.used+1)*4 > uint64(t.slots)*3 {
			return true
		}
	}
	return false
}

// all returns every valid record, with errInvalidIndex if some are invalid.
func (x *index) all() (records []record, err error) {
	var firstErr error
	for i := range x.records.slots {
		s, err := x.records.get(i)
		if err != nil {
			return nil, err
		}
		if s.valid() {
			records = append(records, s.record())
		} else if s.used() {
			firstErr = errInvalidIndex
		}
	}
	return records, firstErr
}

func (x *index) close() {
	if x != nil && x.pages.file != nil {
		x.pages.file.Close()
	}
}
