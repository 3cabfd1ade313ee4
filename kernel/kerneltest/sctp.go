package kerneltest

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// ListenSCTP listens at an address for SCTP, which package net does not have. The listener and its connections are
// those of package net for TCP, whose system calls are the same.
func ListenSCTP(at netip.AddrPort) (net.Listener, error) {
	f, err := socketSCTP(at, func(fd int, sa unix.Sockaddr) error {
		if err := unix.Bind(fd, sa); err != nil {
			return os.NewSyscallError("bind", err)
		}
		return os.NewSyscallError("listen", unix.Listen(fd, 128))
	})
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return net.FileListener(f)
}

// DialSCTP opens an association of SCTP. The error is EINPROGRESS if nobody answers within the limit. A signal of the Go
// runtime, which ends a system call with a limit, is no answer: it dials again.
func DialSCTP(to netip.AddrPort, limit time.Duration) (c net.Conn, err error) {
	for end := time.Now().Add(limit); ; {
		if c, err = dialSCTP(to, max(time.Until(end), time.Millisecond)); !errors.Is(err, unix.EINTR) {
			return c, err
		}
	}
}

func dialSCTP(to netip.AddrPort, limit time.Duration) (net.Conn, error) {
	f, err := socketSCTP(to, func(fd int, sa unix.Sockaddr) error {
		tv := unix.NsecToTimeval(limit.Nanoseconds())
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &tv); err != nil {
			return os.NewSyscallError("setsockopt", err)
		}
		return os.NewSyscallError("connect", unix.Connect(fd, sa))
	})
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return net.FileConn(f)
}

// socketSCTP creates a socket and calls do with it and an address.
func socketSCTP(addr netip.AddrPort, do func(fd int, sa unix.Sockaddr) error) (*os.File, error) {
	family, sa := unix.AF_INET, unix.Sockaddr(&unix.SockaddrInet4{Port: int(addr.Port())})
	if addr.Addr().Is4() {
		sa.(*unix.SockaddrInet4).Addr = addr.Addr().As4()
	} else {
		family, sa = unix.AF_INET6, &unix.SockaddrInet6{Port: int(addr.Port()), Addr: addr.Addr().As16()}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	f := os.NewFile(uintptr(fd), "sctp")
	if err := do(fd, sa); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
