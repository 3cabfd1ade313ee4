//go:build linux

// Package plainfile reads and writes small files with plain system calls. Files of package os would register with the
// runtime's poller first, which takes six more calls per file.
package plainfile

import (
	"errors"
	"io/fs"
	"slices"
	"syscall"
)

// Open opens a file with the flags of open(2) and close-on-exec.
func Open(path string, flags int, mode uint32) (int, error) {
	for {
		fd, err := syscall.Open(path, flags|syscall.O_CLOEXEC, mode)
		if err == nil {
			return fd, nil
		}
		if err != syscall.EINTR {
			return -1, &fs.PathError{Op: "open", Path: path, Err: err}
		}
	}
}

// Read returns the content of a regular file. It does not wait for the writer of a FIFO. See ReadAll for its limits.
func Read(path string) ([]byte, error) {
	fd, err := Open(path, syscall.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer syscall.Close(fd)
	return ReadAll(fd, path)
}

// ErrNotRegular is the error of reading a FIFO, a socket or a device.
var ErrNotRegular = errors.New("not a regular file") // constant, never assigned

// Max is the largest size in bytes of a file that Read reads. No state is that large. The error of a larger file is EFBIG.
const Max = 64 << 20

// ReadAll reads an open regular file, of at most Max bytes, to its end. The error contains path. For a directory it is
// EISDIR, and for other special files ErrNotRegular.
func ReadAll(fd int, path string) ([]byte, error) { return ReadAllInto(fd, path, nil) }

// ReadAllInto is ReadAll that overwrites buf, or uses a larger buffer if the file does not fit. For many files in turn, one
// buffer is enough.
func ReadAllInto(fd int, path string, buf []byte) ([]byte, error) {
	var st syscall.Stat_t
	err := syscall.Fstat(fd, &st)
	switch {
	case err != nil:
	case st.Mode&syscall.S_IFMT == syscall.S_IFDIR:
		err = syscall.EISDIR
	case st.Mode&syscall.S_IFMT != syscall.S_IFREG:
		err = ErrNotRegular
	case st.Size > Max:
		err = syscall.EFBIG
	}
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: path, Err: err}
	}
	b := slices.Grow(buf[:0], int(max(st.Size+1, usual))) // the size is a guess: 0 for a file of the kernel
	for {
		n, err := syscall.Read(fd, b[len(b):cap(b)])
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return nil, &fs.PathError{Op: "read", Path: path, Err: err}
		case n == 0:
			return b, nil
		default:
			b = b[:len(b)+n]
		}
		if len(b) > Max {
			return nil, &fs.PathError{Op: "read", Path: path, Err: syscall.EFBIG}
		}
		if len(b) == cap(b) {
			b = append(b, make([]byte, cap(b))...)[:len(b)]
		}
	}
}

// usual is a size in bytes that few of the kernel's files exceed. Reading a smaller file takes two calls: the second
// returns the end of file.
const usual = 512

// Write replaces the content of a file by p. It rejects a symbolic link, which could redirect root's write to any file.
func Write(path string, p []byte, mode uint32) error {
	fd, err := Open(path, syscall.O_WRONLY|syscall.O_CREAT|syscall.O_TRUNC|syscall.O_NOFOLLOW, mode)
	if err != nil {
		return err
	}
	err = WriteAt(fd, p, 0, path)
	if e := syscall.Close(fd); err == nil && e != nil {
		err = &fs.PathError{Op: "close", Path: path, Err: e}
	}
	return err
}

// WriteAt writes all of p to an open file at an offset in bytes. The error contains path.
func WriteAt(fd int, p []byte, at int64, path string) error {
	for len(p) > 0 {
		n, err := syscall.Pwrite(fd, p, at)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return &fs.PathError{Op: "write", Path: path, Err: err}
		}
		p, at = p[n:], at+int64(n)
	}
	return nil
}
