package kernel

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
)

// Netns is an open network namespace.
type Netns struct {
	fd   int
	path string
}

// OpenNetns opens the namespace that a path names. A path that does not exist or leads
// nowhere, or to something that is no network namespace (a mount that is gone), is
// os.ErrNotExist.
func OpenNetns(path string) (*Netns, error) {
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
	return &Netns{fd: fd, path: path}, nil
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
func Current() (*Netns, error) { return OpenNetns("/proc/thread-self/ns/net") }

// netns is the namespace that a socket was opened in. The socket is asked
// (SIOCGSKNS, kernel 4.10): a new process's directory under /proc costs more.
func (c *conn) netns() (*Netns, error) {
	fd, err := unix.IoctlRetInt(c.fd, unix.SIOCGSKNS)
	if err != nil {
		return Current()
	}
	return &Netns{fd: fd, path: "the namespace of the host"}, nil
}

// Path is the path by which it was opened.
func (n *Netns) Path() string { return n.path }

// Unlock lets others lock the namespace.
func (n *Netns) Unlock() { _ = unix.Flock(n.fd, unix.LOCK_UN) }

// Lock waits until nobody else has locked the namespace, and keeps it locked
// until Unlock or Close. The end of the wait is a *filelock.Busy.
func (n *Netns) Lock(ctx context.Context) error { return filelock.Lock(ctx, n.fd, n.path) }

// Close closes the handle; the namespace lives on if others hold it.
func (n *Netns) Close() { _ = unix.Close(n.fd) }

// ID is the device and inode, by which a namespace is told from its successor.
func (n *Netns) ID() (string, error) {
	var st unix.Stat_t
	if err := unix.Fstat(n.fd, &st); err != nil {
		return "", fmt.Errorf("look at %s: %w", n.path, err)
	}
	return fmt.Sprintf("%d:%d", st.Dev, st.Ino), nil
}

// SameAs tells whether both are one namespace.
func (n *Netns) SameAs(m *Netns) bool {
	var a, b unix.Stat_t
	return unix.Fstat(n.fd, &a) == nil && unix.Fstat(m.fd, &b) == nil && a.Dev == b.Dev && a.Ino == b.Ino
}

// Do runs f on a thread that is in the namespace. The thread is used again
// only if it could be brought back.
func (n *Netns) Do(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread() // the lock counts: doFrom has its own
	back, err := Current()
	if err != nil {
		return err
	}
	defer back.Close()
	return n.doFrom(back, f)
}

// doFrom is Do for a caller that knows its own namespace.
func (n *Netns) doFrom(back *Netns, f func() error) error {
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
func MakeNetns(path string) error {
	if ns, err := OpenNetns(path); err == nil {
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
	if err := inNewNetns(func(c *conn) error { return keepNetns(c, path) }); err != nil {
		_ = os.Remove(path)
		return fmt.Errorf("make network namespace %s: %w", path, err)
	}
	return nil
}

// inNewNetns calls f on a thread that is alone in a new namespace.
func inNewNetns(f func(*conn) error) error {
	done := make(chan error)
	go func() { // the thread is thrown away: it stays locked
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		c, err := dial(unix.NETLINK_ROUTE, make([]byte, rxSize))
		if err == nil {
			err = f(c)
			c.close()
		}
		done <- err
	}()
	return <-done
}

func keepNetns(c *conn, path string) error {
	b := ifinfo(0, unix.IFF_UP, unix.IFF_UP)
	b.str(unix.IFLA_IFNAME, "lo")
	if _, err := c.do([]request{{unix.RTM_NEWLINK, unix.NLM_F_ACK, b}}); err != nil {
		return err
	}
	return unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, "")
}

// RemoveNetns takes away what MakeNetns made. The namespace ends when nothing else
// holds it; one that is not there is os.ErrNotExist.
func RemoveNetns(path string) error {
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && err != unix.EINVAL {
		return &fs.PathError{Op: "unmount", Path: path, Err: err}
	}
	return os.Remove(path)
}
