// Package unixdial connects to a unix socket by system calls. Package net would cost each start of a plugin more than
// the call itself.
package unixdial

import (
	"fmt"
	"os"
	"syscall"
)

// AbsentError is the error if nothing listens on a socket.
type AbsentError struct {
	Socket string
	Err    error
}

func (e *AbsentError) Error() string { return fmt.Sprintf("nobody listens at %s: %v", e.Socket, e.Err) }

// Unwrap returns the system call's error.
func (e *AbsentError) Unwrap() error { return e.Err }

// Dial connects to a socket. The returned file supports deadlines. The error is an *AbsentError if nothing listens
// there. After another error, something may be listening.
func Dial(socket string) (*os.File, error) {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open a socket: %w", err)
	}
	for err = syscall.EINTR; err == syscall.EINTR; {
		err = syscall.Connect(fd, &syscall.SockaddrUnix{Name: socket})
	}
	// EINVAL: the path is too long for a socket (unix(7)), so nothing can listen there.
	absent := err == syscall.ENOENT || err == syscall.ENOTDIR || err == syscall.ECONNREFUSED || err == syscall.EINVAL
	if err == nil {
		err = syscall.SetNonblock(fd, true) // lets the poller handle it, so that deadlines work
	}
	if err != nil {
		_ = syscall.Close(fd)
	}
	switch {
	case absent:
		return nil, &AbsentError{socket, err}
	case err != nil:
		return nil, err
	}
	return os.NewFile(uintptr(fd), socket), nil
}
