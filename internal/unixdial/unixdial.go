// Package unixdial connects to a socket of this host by system calls: package net
// costs each start of a plugin more than the call itself.
package unixdial

import (
	"fmt"
	"os"
	"syscall"
)

// AbsentError is a socket on which nobody listens.
type AbsentError struct {
	Socket string
	Err    error
}

func (e *AbsentError) Error() string { return fmt.Sprintf("nobody listens at %s: %v", e.Socket, e.Err) }

// Unwrap is the system call's error.
func (e *AbsentError) Unwrap() error { return e.Err }

// Dial connects. The file can be given deadlines. That nobody is there is an
// *AbsentError; after another error somebody may be.
func Dial(socket string) (*os.File, error) {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open a socket: %w", err)
	}
	for err = syscall.EINTR; err == syscall.EINTR; {
		err = syscall.Connect(fd, &syscall.SockaddrUnix{Name: socket})
	}
	// EINVAL: the path is longer than a socket's can be (unix(7)), so that nobody listens there.
	absent := err == syscall.ENOENT || err == syscall.ENOTDIR || err == syscall.ECONNREFUSED || err == syscall.EINVAL
	if err == nil {
		err = syscall.SetNonblock(fd, true) // fit for the poller, so that it can be given a deadline
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
