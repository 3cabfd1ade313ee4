package attach

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/internal/plainfile"
	"github.com/fairlead/fairlead/kernel"
)

// The process of an ADD holds a lock on its record for as long as it works: the
// kernel frees it at the end of the process, whatever ended it. That holds in
// any namespace of processes, and a number used again deceives nobody.

// Reservation is an attachment's place for the record of the one ADD that holds
// it: the file that is to be the record, locked, under its temporary name.
type Reservation struct {
	path string
	fd   int
	used bool
}

// Reserve takes the place for an ADD that has not begun to write. While another
// has it, that is os.ErrExist. A kill leaves an empty file, which Remove takes along.
func (d *Dir) Reserve(o kernel.Owner) (*Reservation, error) {
	path := d.file(o) + "~"
	looked := false
	for range 8 { // others may take the file, or the whole directory, along
		fd, err := plainfile.Open(path, syscall.O_WRONLY|syscall.O_CREAT|syscall.O_NOFOLLOW, 0o600)
		if errors.Is(err, os.ErrNotExist) {
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				return nil, err
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		err = syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil && own(fd, path) {
			return &Reservation{path: path, fd: fd}, nil
		}
		_ = syscall.Close(fd)
		if err == syscall.EWOULDBLOCK && !looked { // it may be ClearPlaces, which only looks
			looked = true
			time.Sleep(placePoll)
			continue
		}
		if err == syscall.EWOULDBLOCK {
			return nil, fmt.Errorf("an ADD of container %s to network %s as %s is at work: %w", o.ContainerID, o.Network, o.IfName, os.ErrExist)
		}
		if err != nil {
			return nil, &os.PathError{Op: "lock", Path: path, Err: err}
		}
	}
	return nil, &os.PathError{Op: "reserve", Path: path, Err: syscall.EAGAIN}
}

// own tells whether a locked file is the reservation still, and not a record by
// now. One that was killed between the two steps of Create has both names.
func own(fd int, path string) bool {
	var mine syscall.Stat_t
	if !same(fd, path) || syscall.Fstat(fd, &mine) != nil {
		return false
	}
	if mine.Nlink > 1 {
		_ = syscall.Unlink(path)
		return false
	}
	return mine.Size == 0 || syscall.Ftruncate(fd, 0) == nil
}

// Free gives the place back, if no record was written.
func (r *Reservation) Free() {
	if r == nil || r.used {
		return
	}
	r.used = true
	if same(r.fd, r.path) { // a DEL takes it away, and the next ADD has one of its own there
		_ = syscall.Unlink(r.path) // before the lock goes: who waits for it looks again
	}
	_ = syscall.Close(r.fd)
	_ = syscall.Rmdir(filepath.Dir(r.path)) // fails while others are in it
}

// ClearPlaces removes the places in a network that kills left, whatever is in
// them. The ADD that is at work keeps its own.
func (d *Dir) ClearPlaces(network string) error {
	files, err := filepath.Glob(filepath.Join(d.network(network), "*~"))
	errs := []error{err}
	for _, path := range files {
		fd, err := plainfile.Open(path, syscall.O_WRONLY|syscall.O_NOFOLLOW, 0)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			if syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB) == nil && same(fd, path) {
				err = os.Remove(path)
			}
			_ = syscall.Close(fd)
		}
		errs = append(errs, err)
	}
	_ = os.Remove(d.network(network)) // fails while others are in it
	return errors.Join(errs...)
}

// same tells whether a path still names the file that is open.
func same(fd int, path string) bool {
	var mine, there syscall.Stat_t
	return syscall.Fstat(fd, &mine) == nil && syscall.Stat(path, &there) == nil && mine.Ino == there.Ino && mine.Dev == there.Dev
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

// Unlock says that whoever wrote or took the record is no longer at work.
func (r *Record) Unlock() {
	if r != nil && r.held {
		_ = syscall.Close(r.fd)
		r.held = false
	}
}
