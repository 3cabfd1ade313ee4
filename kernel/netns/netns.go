package netns

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/filelock"
	"github.com/fairlead/fairlead/kernel/netlink"
)

// Netns is an open network namespace.
type Handle struct {
	fd   int
	path string
}

// OpenNetns opens the namespace that a path names. A path that does not exist or leads
// nowhere, or to something that is no network namespace (a mount that is gone), is
// os.ErrNotExist.
func Open(path string) (*Handle, error) {
	// Without waiting: a FIFO would have it wait for a writer.
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	switch err {
	case nil:
	case unix.ELOOP, unix.ENOTDIR, unix.ENAMETOOLONG, unix.ENXIO, unix.ENODEV:
		return nil, fmt.Errorf("%s leads to no network namespace: %s: %w", path, err.Error(), os.ErrNotExist)
	default:
		return nil, &fs.PathError{Op: "open network namespace", Path: path, Err: err}
	}
	if problem := notNetns(fd); problem != "" {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("%s is no network namespace (%s): %w", path, problem, os.ErrNotExist)
	}
	return &Handle{fd: fd, path: path}, nil
}

// notNetns says why a file is none. Namespaces of other types are of the same filesystem.
func notNetns(fd int) string {
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil || st.Type != unix.NSFS_MAGIC {
		return "nothing is mounted there"
	}
	typ, err := unix.IoctlRetInt(fd, unix.NS_GET_NSTYPE) // kernel 4.11
	if err == nil && typ != unix.CLONE_NEWNET {
		return "it is a namespace of another type"
	}
	return ""
}

// Current opens the namespace of the calling thread.
func Current() (*Handle, error) { return Open("/proc/thread-self/ns/net") }

// netnsOf is the namespace that a socket was opened in. The socket is asked
// (SIOCGSKNS, kernel 4.10): a new process's directory under /proc costs more.
func OfSocket(c *netlink.Conn) (*Handle, error) {
	fd, err := unix.IoctlRetInt(c.FD(), unix.SIOCGSKNS)
	if err != nil {
		return Current()
	}
	return &Handle{fd: fd, path: "the namespace of the host"}, nil
}

// FD is the open descriptor, for a message that names the namespace.
func (n *Handle) FD() int { return n.fd }

// Path is the path by which it was opened.
func (n *Handle) Path() string { return n.path }

// Unlock lets others lock the namespace.
func (n *Handle) Unlock() { _ = unix.Flock(n.fd, unix.LOCK_UN) }

// Lock waits until nobody else has locked the namespace, and keeps it locked
// until Unlock or Close. The end of the wait is a *filelock.Busy.
func (n *Handle) Lock(ctx context.Context) error { return filelock.Lock(ctx, n.fd, n.path) }

// Close closes the handle; the namespace lives on if others hold it.
func (n *Handle) Close() { _ = unix.Close(n.fd) }

// ID is the device and inode, by which a namespace is told from its successor.
func (n *Handle) ID() (string, error) {
	var st unix.Stat_t
	if err := unix.Fstat(n.fd, &st); err != nil {
		return "", fmt.Errorf("look at %s: %w", n.path, err)
	}
	return fmt.Sprintf("%d:%d", st.Dev, st.Ino), nil
}

// SameAs tells whether both are one namespace.
func (n *Handle) SameAs(m *Handle) bool {
	var a, b unix.Stat_t
	return unix.Fstat(n.fd, &a) == nil && unix.Fstat(m.fd, &b) == nil && a.Dev == b.Dev && a.Ino == b.Ino
}

// Do runs f on a thread that is in the namespace. The thread is used again
// only if it could be brought back.
func (n *Handle) Do(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread() // the lock counts: doFrom has its own
	back, err := Current()
	if err != nil {
		return err
	}
	defer back.Close()
	return n.DoFrom(back, f)
}

// doFrom is Do for a caller that knows its own namespace.
func (n *Handle) DoFrom(back *Handle, f func() error) error {
	runtime.LockOSThread()
	if err := unix.Setns(n.fd, unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter %s: %w", n.path, err)
	}
	err := f()
	if e := unix.Setns(back.fd, unix.CLONE_NEWNET); e != nil {
		// The thread stays locked, so the runtime ends it with its goroutine.
		return errors.Join(err, fmt.Errorf("leave %s: %w", n.path, e))
	}
	runtime.UnlockOSThread()
	return err
}

// MakeNetns makes a network namespace that lives until RemoveNetns, as "ip netns add"
// does, with lo up. One that is there is no error.
func Create(path string) error {
	if ns, err := Open(path); err == nil {
		ns.Close()
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o444)
	if err != nil {
		return err
	}
	f.Close()
	if err := InNew(func(c *netlink.Conn) error { return keepNetns(c, path) }); err != nil {
		_ = os.Remove(path)
		return fmt.Errorf("make network namespace %s: %w", path, err)
	}
	return nil
}

// inNewNetns calls f on a thread that is alone in a new namespace.
func InNew(f func(*netlink.Conn) error) error {
	done := make(chan error)
	go func() { // the thread is thrown away: it stays locked
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		c, err := netlink.Dial(unix.NETLINK_ROUTE, make([]byte, netlink.BufferSize))
		if err == nil {
			err = f(c)
			c.Close()
		}
		done <- err
	}()
	return <-done
}

func keepNetns(c *netlink.Conn, path string) error {
	b := netlink.LinkMessage(0, unix.IFF_UP, unix.IFF_UP)
	b.String(unix.IFLA_IFNAME, "lo")
	if _, err := c.Do([]netlink.Request{{Type: unix.RTM_NEWLINK, Flags: unix.NLM_F_ACK, Body: b}}); err != nil {
		return err
	}
	return unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, "")
}

// RemoveNetns takes away what MakeNetns made. The namespace ends when nothing else
// holds it; one that is not there is os.ErrNotExist.
func Remove(path string) error {
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && err != unix.EINVAL {
		return &fs.PathError{Op: "unmount", Path: path, Err: err}
	}
	return os.Remove(path)
}
