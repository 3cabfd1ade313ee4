package attach

import (
	"syscall"

	"github.com/fairlead/fairlead/internal/plainfile"
)

// The process of an ADD holds a lock on its record for as long as it works: the
// kernel frees it at the end of the process, whatever ended it. That holds in
// any namespace of processes, and a number used again deceives nobody.

// writeLocked writes a file that nobody else knows yet, and returns it open and
// locked.
func writeLocked(path string, raw []byte) (fd int, err error) {
	fd, err = plainfile.Open(path, syscall.O_WRONLY|syscall.O_CREAT|syscall.O_TRUNC, 0o600)
	if err != nil {
		return fd, err
	}
	if err = syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
		err = plainfile.WriteAt(fd, raw, 0, path)
	}
	if err != nil {
		_ = syscall.Close(fd)
	}
	return fd, err
}

// readLocked reads a file and tells whether somebody held its lock. It asks
// first: what is read without an ADD at work has its last state.
func readLocked(path string) (raw []byte, locked bool, err error) {
	fd, err := plainfile.Open(path, syscall.O_RDONLY, 0)
	if err != nil {
		return nil, false, err
	}
	defer syscall.Close(fd)
	locked = syscall.Flock(fd, syscall.LOCK_SH|syscall.LOCK_NB) == syscall.EWOULDBLOCK
	raw, err = plainfile.ReadAll(fd, path)
	return raw, locked, err
}

// Unlock says that the ADD that wrote the record is no longer at work.
func (r *Record) Unlock() {
	if r.held {
		_ = syscall.Close(r.fd)
		r.held = false
	}
}
