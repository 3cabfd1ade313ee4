package ipam

import (
	"os"
	"strconv"
	"syscall"
)

// Where addresses are asked for by number, a file of one that was given back is kept,
// beside the index, and written anew for the next: to make one is the dearest call of an ADD where many were removed
// of late, as ext4 looks at each inode that died within the last minutes.

// maxSpares is how many are kept.
const maxSpares = 64

func (s *Store) spare(i uint32) string { return s.temp + "/spare." + strconv.FormatUint(uint64(i), 10) }

// put removes a record's file, in one step, and keeps it as a spare if it is one of ours.
func (s *Store) put(r record) error {
	n := s.index.header.spares
	keep := s.asked && r.reserved != 0 && n < maxSpares
	if keep && retry(func() error { return syscall.Rename(s.dir.file(r.addr), s.spare(n)) }) == nil {
		s.index.header.spares = n + 1
		return nil
	}
	return s.remove(r.addr)
}

// reuse writes an owner into a spare, which is what temporary is then. One that has
// another name may be an address: it is not written into.
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

// clearSpares removes what is kept, up to the first that is not there.
func (s *Store) clearSpares() {
	for i := range uint32(maxSpares) {
		if retry(func() error { return syscall.Unlink(s.spare(i)) }) != nil {
			return
		}
	}
}
