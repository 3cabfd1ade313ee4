package attach

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"syscall"

	"github.com/fairlead/fairlead/internal/plainfile"
)

// ListWith returns the records whose files contain one of the texts. It decodes no others, of which a host may have
// thousands. JSON must not escape any character of a text.
func (d *Dir) ListWith(texts []string) (records []*Record, err error) {
	var words [][]byte
	for _, t := range texts {
		words = append(words, []byte(t))
	}
	var buf []byte
	for _, file := range d.files("") {
		if d.err != nil {
			return nil, d.err
		}
		if buf, err = readRecord(file, buf); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		if err != nil || !slices.ContainsFunc(words, func(w []byte) bool { return bytes.Contains(buf, w) }) {
			continue
		}
		r, err := d.read(file)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		if err == nil {
			records = append(records, r)
		}
	}
	return records, nil
}

// readRecord reads a record's file into buf, which it extends if the file is larger.
func readRecord(path string, buf []byte) ([]byte, error) {
	fd, err := openRecord(path)
	if err != nil {
		return buf, err
	}
	defer syscall.Close(fd)
	buf, err = plainfile.ReadAllInto(fd, path, buf)
	return buf, notRecord(path, err)
}
