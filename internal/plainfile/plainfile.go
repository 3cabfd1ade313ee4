//go:build linux

// Package plainfile reads and writes small files with plain system calls. Files of package os would register with the
// runtime's poller first, which takes six more calls per file.
package plainfile

import (
	"io/fs"
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

// Read returns the content of a file.
func Read(path string) ([]byte, error) {
	fd, err := Open(path, syscall.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer syscall.Close(fd)
	return ReadAll(fd, path)
}

// ReadAll reads an open file to its end. The error contains path.
func ReadAll(fd int, path string) ([]byte, error) {
	var st syscall.Stat_t
	_ = syscall.Fstat(fd, &st) // the size is a guess: 0 for a file of the kernel
	b := make([]byte, 0, max(st.Size+1, usual))
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
