package skel

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
)

// nsfsMagic is NSFS_MAGIC of linux/magic.h.
const nsfsMagic = 0x6e736673

func checkNetnsPath(path string) error {
	var st syscall.Statfs_t
	err := syscall.Statfs(path, &st)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("the network namespace is gone: %w", err)
	case err != nil:
		return fmt.Errorf("look at the network namespace: %w", err)
	case uint32(st.Type) != nsfsMagic:
		return fmt.Errorf("not a network namespace (filesystem type %#x): want a path like /run/netns/NAME or /proc/PID/ns/net", uint32(st.Type))
	}
	return nil
}

// isOwnNetns compares with the calling thread's namespace, not the process's:
// that is the first thread's, which may have been left in another one.
func isOwnNetns(path string) bool {
	var own, other syscall.Stat_t
	if syscall.Stat("/proc/thread-self/ns/net", &own) != nil || syscall.Stat(path, &other) != nil {
		return false
	}
	return own.Dev == other.Dev && own.Ino == other.Ino
}
