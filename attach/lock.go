package attach

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/internal/filelock"
	"github.com/fairlead/fairlead/internal/plainfile"
	"github.com/fairlead/fairlead/kernel"
)

// The process of an ADD holds a lock on its record while it works. The kernel releases it however the process ends.
// Unlike a process ID, this works across PID namespaces, and a reused number does no harm.

// Reservation reserves an attachment for one ADD until its record exists. It is the locked file that becomes the
// record, under its temporary name.
type Reservation struct {
	path string
	fd   int
	used bool
}

// Reserve reserves an attachment for an ADD that has not written yet. If another process holds the reservation, or
// others take and free it all the time, the error is os.ErrExist. A killed process leaves an empty file, which Remove
// deletes.
func (d *Dir) Reserve(o kernel.Owner) (*Reservation, error) {
	path := d.file(o) + "~"
	looked := false
	for range lockTries { // others may delete the file
		fd, err := openLockFile(path)
		if err == syscall.EAGAIN {
			break
		}
		if err != nil {
			return nil, err
		}
		err = syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil && own(fd, path) {
			return &Reservation{path: path, fd: fd}, nil
		}
		_ = filelock.CloseFD(fd)
		if err == syscall.EWOULDBLOCK {
			if looked {
				break
			}
			looked = true // it may be ClearReservations, which holds the lock only briefly
			time.Sleep(reservationPoll)
			continue
		}
		if err != nil {
			return nil, &os.PathError{Op: "lock", Path: path, Err: err}
		}
	}
	return nil, fmt.Errorf("an ADD of container %s to network %s as %s is in progress: %w", o.ContainerID, o.Network, o.IfName, os.ErrExist)
}

// lockTries limits the attempts to open a lock file while others delete it or its directory.
const lockTries = 8

// openLockFile opens a lock file. It creates the file and its directory if they do not exist. The error is EAGAIN if
// others delete the directory all the time.
func openLockFile(path string) (int, error) {
	for range lockTries {
		fd, err := plainfile.Open(path, syscall.O_WRONLY|syscall.O_CREAT|syscall.O_NOFOLLOW, 0o600)
		if !errors.Is(err, os.ErrNotExist) {
			return fd, err
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return -1, err
		}
	}
	return -1, syscall.EAGAIN
}

// own reports whether a locked file is still the reservation and not a record by now. After a kill between the two
// steps of Create it has both names.
func own(fd int, path string) bool {
	var own syscall.Stat_t
	if !same(fd, path) || syscall.Fstat(fd, &own) != nil {
		return false
	}
	if own.Nlink > 1 {
		_ = syscall.Unlink(path)
		return false
	}
	return own.Size == 0 || syscall.Ftruncate(fd, 0) == nil
}

// IsCurrent reports whether the reservation is still at its path: a DEL deletes it, and the next ADD has one of its own.
func (r *Reservation) IsCurrent() bool { return !r.used && same(r.fd, r.path) }

// Holds reports whether the record that this process wrote or took, and keeps locked, is still in its file.
func (d *Dir) Holds(r *Record) bool { return r.held && same(r.fd, d.file(r.Owner())) }

// Free releases the reservation if no record was written.
func (r *Reservation) Free() {
	if r == nil || r.used {
		return
	}
	r.used = true
	if same(r.fd, r.path) { // after a DEL the path may be the next ADD's
		_ = syscall.Unlink(r.path) // before unlocking: a waiter must see that the file is gone
	}
	_ = filelock.CloseFD(r.fd)
	_ = syscall.Rmdir(filepath.Dir(r.path)) // fails while the directory has other entries
}

// ClearReservations deletes the reservations of killed processes in a network, whatever they contain. An ADD in
// progress keeps its own.
func (d *Dir) ClearReservations(network string) error {
	files, err := filepath.Glob(filepath.Join(d.network(network), "*~"))
	errs := []error{err}
	for _, path := range files {
		errs = append(errs, clearLock(path))
	}
	_ = os.Remove(d.network(network)) // fails while the directory has other entries
	return errors.Join(errs...)
}

// clearLock deletes a lock's file unless a process holds the lock.
func clearLock(path string) error {
	fd, err := plainfile.Open(path, syscall.O_WRONLY|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer filelock.CloseFD(fd)
	if syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB) == nil && same(fd, path) {
		err = os.Remove(path)
	}
	return err
}

// same reports whether an open file is still the one at its path.
func same(fd int, path string) bool {
	var own, there syscall.Stat_t
	return syscall.Fstat(fd, &own) == nil && syscall.Stat(path, &there) == nil && own.Ino == there.Ino && own.Dev == there.Dev
}

// readLocked reads a record and reports whether an ADD held its lock. The lock of a finished record is not tested: a test
// is a lock itself, and would get in the way of a DEL. An unfinished record is read again after the test, so without an
// ADD in progress the contents are final. The ADD may have replaced the file before the test: then readLocked starts
// again.
func readLocked(path string) (raw []byte, locked bool, err error) {
	for replaced := true; replaced && err == nil; {
		raw, locked, replaced, err = tryReadLocked(path)
	}
	return raw, locked, err
}

func tryReadLocked(path string) (raw []byte, locked, replaced bool, err error) {
	fd, err := openRecord(path)
	if err != nil {
		return nil, false, false, err
	}
	defer filelock.CloseFD(fd)
	raw, err = plainfile.ReadAll(fd, path)
	if err != nil || !bytes.Contains(raw, []byte(notDone)) {
		return raw, false, false, err
	}
	locked = syscall.Flock(fd, syscall.LOCK_SH|syscall.LOCK_NB) == syscall.EWOULDBLOCK
	if _, err := syscall.Seek(fd, 0, io.SeekStart); err != nil {
		return nil, false, false, &os.PathError{Op: "seek", Path: path, Err: err}
	}
	raw, err = plainfile.ReadAll(fd, path)
	return raw, locked, !locked && !same(fd, path), err
}

// Unlock ends the work of the process that wrote or took the record.
func (r *Record) Unlock() {
	if r != nil && r.held {
		_ = filelock.CloseFD(r.fd)
		r.held = false
	}
}
