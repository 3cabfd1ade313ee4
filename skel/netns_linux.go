package skel

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
)

// nsfsMagic is NSFS_MAGIC from linux/magic.h.
const nsfsMagic = 0x6e736673

func checkNetnsPath(path string) error {
	var st syscall.Statfs_t
	err := syscall.Statfs(path, &st)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("the network namespace is gone: %w", err)
	case err != nil:
		return fmt.Errorf("examine the network namespace: %w", err)
	case uint32(st.Type) != nsfsMagic:
		return fmt.Errorf("not a network namespace (filesystem type %#x): want a path like /run/netns/NAME or /proc/PID/ns/net", uint32(st.Type))
	}
	return nil
}

// isOwnNetns compares with the calling thread's namespace. The process's namespace is the first thread's, which may
// have been left in another one.
func isOwnNetns(path string) bool {
	var own, other syscall.Stat_t
	if syscall.Stat(path, &other) != nil || statOwnNetns(&own) != nil {
		return false
	}
	return own.Dev == other.Dev && own.Ino == other.Ino
}

// siocgskns gets a socket's namespace: linux/sockios.h, kernel 4.10, needs CAP_NET_ADMIN.
const siocgskns = 0x894C

// statOwnNetns uses a new socket, which is cheaper than the first access to a new process's directory in /proc. Without
// permission it falls back to /proc.
func statOwnNetns(st *syscall.Stat_t) error {
	sock, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
	if err == nil {
		defer syscall.Close(sock)
		if fd, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(sock), siocgskns, 0); errno == 0 {
			defer syscall.Close(int(fd))
			return syscall.Fstat(int(fd), st)
		}
	}
	return syscall.Stat("/proc/thread-self/ns/net", st)
}
