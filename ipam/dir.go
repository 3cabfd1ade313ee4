package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"syscall"
	"time"
)

// directory is a network's address directory: the database, shared with host-local.
type directory string

// file returns the path of an address.
func (d directory) file(a netip.Addr) string { return string(d) + "/" + a.String() }

// state returns a value that changes whenever anyone adds or removes a file.
func (d directory) state() (dirState, error) {
	var st syscall.Stat_t
	if err := retry(func() error { return syscall.Stat(string(d), &st) }); err != nil {
		return dirState{}, &os.PathError{Op: "stat", Path: string(d), Err: err}
	}
	return dirState{st.Ino, st.Ctim.Nano(), st.Mtim.Nano()}, nil
}

// backdate sets the directory's modification time to a time in the past. Any later change sets it to the present, so
// none is missed, even within one tick of a coarse clock.
func (d directory) backdate() (dirState, error) {
	past := syscall.NsecToTimespec(time.Now().Add(-2 * time.Second).UnixNano())
	err := retry(func() error { return syscall.UtimesNano(string(d), []syscall.Timespec{past, past}) })
	if err != nil {
		return dirState{}, &os.PathError{Op: "set the timestamps of", Path: string(d), Err: err}
	}
	return d.state()
}

// stat returns the inode and change time of an address file.
func (d directory) stat(a netip.Addr) (ino uint64, ctime int64, err error) {
	var st syscall.Stat_t
	if err := retry(func() error { return syscall.Lstat(d.file(a), &st) }); err != nil {
		return 0, 0, &os.PathError{Op: "stat", Path: d.file(a), Err: err}
	}
	return st.Ino, st.Ctim.Nano(), nil
}

// owner reads an address's owner. An unreadable file has the zero Owner. If the system only lacks open files or memory at
// the moment, owner returns an error: otherwise the index would forget the owner for good.
func (d directory) owner(a netip.Addr) (Owner, error) {
	data, err := readSmall(d.file(a))
	for _, lacks := range []error{os.ErrNotExist, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM} {
		if errors.Is(err, lacks) {
			return Owner{}, err
		}
	}
	if err != nil {
		return Owner{}, nil
	}
	return parseOwner(data), nil
}

// addresses lists the allocated addresses.
func (d directory) addresses() ([]netip.Addr, error) {
	f, err := os.Open(string(d))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list the allocated addresses: %w", err)
	}
	addrs := make([]netip.Addr, 0, len(names))
	for _, name := range names {
		if a, err := netip.ParseAddr(name); err == nil && a.String() == name && a == a.Unmap() && a.Zone() == "" {
			addrs = append(addrs, a)
		}
	}
	return addrs, nil
}

// lastReserved reads last_reserved_ip.0, .1 and so on: the last allocated address of each range set.
func (d directory) lastReserved() (last []string, err error) {
	for {
		data, err := readSmall(d.lastFile(len(last)))
		if errors.Is(err, os.ErrNotExist) {
			return last, nil
		}
		if err != nil {
			return nil, err
		}
		last = append(last, string(data))
	}
}

func (d directory) lastFile(set int) string {
	return string(d) + "/last_reserved_ip." + strconv.Itoa(set)
}

// noteLast writes the last allocated address of a range set. It is only a hint where to continue, so a kill does no
// harm.
func (d directory) noteLast(set int, a netip.Addr) error {
	f, err := openFile(d.lastFile(set), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	text := a.String()
	if _, err := f.WriteString(text); err != nil {
		return err
	}
	return f.Truncate(int64(len(text)))
}

// openFile is os.OpenFile without its attempt to poll the file, which costs five system calls and is useless for files.
// A symlink is an error, because it may lead out of the directory.
func openFile(path string, flags int, perm uint32) (*os.File, error) {
	var fd int
	err := retry(func() (err error) {
		fd, err = syscall.Open(path, flags|syscall.O_CLOEXEC|syscall.O_NOFOLLOW, perm)
		return err
	})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// readSmall reads a file of a few lines with three system calls. It truncates longer files, which are longer than any
// owner.
func readSmall(path string) ([]byte, error) {
	var fd int
	err := retry(func() (err error) {
		fd, err = syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
		return err
	})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer syscall.Close(fd)
	buf, n := make([]byte, maxOwner+1), 0
	err = retry(func() (err error) { n, err = syscall.Read(fd, buf); return err })
	if err != nil {
		return nil, &os.PathError{Op: "read", Path: path, Err: err}
	}
	return buf[:n], nil
}

func retry(f func() error) error {
	for {
		if err := f(); err != syscall.EINTR {
			return err
		}
	}
}
