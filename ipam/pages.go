package ipam

import (
	"fmt"
	"io"
	"os"
)

// pageSize is the number of bytes that one read of the index returns.
const pageSize = 4096

// pages reads the index page by page and writes through to the file. It uses plain reads and writes instead of a
// mapping, because a full disk must be an error, not a signal.
type pages struct {
	file  *os.File // nil: the index could not be stored and exists only in this process
	image []byte   // the whole file, if this process built it
	cache map[int64][]byte
}

// at returns n bytes at an offset; they never cross a page.
func (p *pages) at(off int64, n int) ([]byte, error) {
	if p.image != nil {
		return p.image[off : off+int64(n)], nil
	}
	start := off &^ (pageSize - 1)
	page, ok := p.cache[start]
	if !ok {
		page = make([]byte, pageSize)
		if _, err := p.file.ReadAt(page, start); err != nil && err != io.EOF {
			return nil, fmt.Errorf("read the address index: %w", err)
		}
		p.cache[start] = page
	}
	return page[off-start:][:n], nil
}

// put writes b at an offset, to the cached pages and to the file.
func (p *pages) put(off int64, b []byte) error {
	old, err := p.at(off, len(b))
	if err != nil {
		return err
	}
	copy(old, b)
	if p.file == nil {
		return nil
	}
	if _, err := p.file.WriteAt(b, off); err != nil {
		return fmt.Errorf("write the address index: %w", err)
	}
	return nil
}
