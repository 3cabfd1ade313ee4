package ipam

import (
	"os"
	"strconv"
	"syscall"
)

// Where all addresses are requested by number, a released address's file is kept next to the index and rewritten for
// the next allocation. Creating a file is the most expensive call of an ADD after many removals, because ext4 checks
// every inode that was freed within the last minutes.

// maxSpares bounds the files that are kept.
const maxSpares = 64

func (s *Store) spare(i uint32) string { return s.temp + "/spare." + strconv.FormatUint(uint64(i), 10) }

// removeOrSpare removes a record's file atomically, and keeps it as a spare if it is one of our files.
func (s *Store) removeOrSpare(r record) error {
	n := s.index.header.spares
	keep := s.allRequested && r.reserved != 0 && n < maxSpares
	if keep && retry(func() error { return syscall.Rename(s.dir.file(r.addr), s.spare(n)) }) == nil {
		s.index.header.spares = n + 1
		return nil
	}
	return s.remove(r.addr)
}

// reuse writes an owner into a spare, which then serves as the temporary file. A spare with another link may be an
// address and must not be written to.
func (s *Store) reuse(o Owner) (ino uint64, ok bool) {
	n := s.index.header.spares
	if n == 0 {
		return 0, false
	}
	s.index.header.spares = n - 1
	f, err := openFile(s.spare(n-1), os.O_WRONLY, 0)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	var st syscall.Stat_t
	err = retry(func() error { return syscall.Fstat(int(f.Fd()), &st) })
	if err != nil || st.Nlink != 1 || st.Mode != syscall.S_IFREG|0o600 {
		return 0, false
	}
	text := o.text()
	if _, err = f.WriteString(text); err == nil && st.Size > int64(len(text)) {
		err = f.Truncate(int64(len(text)))
	}
	if err != nil {
		return 0, false
	}
	s.reused = s.spare(n - 1)
	return st.Ino, true
}

// clearSpares removes the spares, up to the first missing one.
func (s *Store) clearSpares() {
	for i := range uint32(maxSpares) {
		if retry(func() error { return syscall.Unlink(s.spare(i)) }) != nil {
			return
		}
	}
}
