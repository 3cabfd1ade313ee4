package netns

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/filelock"
	"github.com/fairlead/fairlead/kernel/netlink"
)

// Handle is an open network namespace.
type Handle struct {
	fd   int
	path string
}

// Open opens the namespace at a path. It returns os.ErrNotExist if nothing exists there, or something that is not a
// network namespace, such as a file whose mount is gone.
func Open(path string) (*Handle, error) {
	// O_NONBLOCK: opening a FIFO would wait for a writer.
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	switch err {
	case nil:
	case unix.ELOOP, unix.ENOTDIR, unix.ENAMETOOLONG, unix.ENXIO, unix.ENODEV:
		return nil, fmt.Errorf("%s does not lead to a network namespace: %s: %w", path, err.Error(), os.ErrNotExist)
	default:
		return nil, &fs.PathError{Op: "open network namespace", Path: path, Err: err}
	}
	if problem := notNetns(fd); problem != "" {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("%s is not a network namespace (%s): %w", path, problem, os.ErrNotExist)
	}
	return &Handle{fd: fd, path: path}, nil
}

// notNetns returns why a file is not a network namespace, or "". Namespaces of other types are on the same filesystem.
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

// OfSocket opens the namespace that a socket was opened in. It asks the socket (SIOCGSKNS, kernel 4.10), which costs
// less than opening /proc/thread-self in a new process.
func OfSocket(c *netlink.Conn) (*Handle, error) {
	fd, err := unix.IoctlRetInt(c.FD(), unix.SIOCGSKNS)
	if err != nil {
		return Current()
	}
	return &Handle{fd: fd, path: "the host's namespace"}, nil
}

// FD returns the file descriptor, for a message that names the namespace.
func (n *Handle) FD() int { return n.fd }

// Path returns the path that the namespace was opened with.
func (n *Handle) Path() string { return n.path }

// Unlock releases the lock.
func (n *Handle) Unlock() { _ = unix.Flock(n.fd, unix.LOCK_UN) }

// Lock locks the namespace until Unlock. It waits for another owner of the lock until the context ends, then
// returns a *filelock.Busy.
func (n *Handle) Lock(ctx context.Context) error { return filelock.Lock(ctx, n.fd, n.path) }

// LockShared is Lock for several owners at once, which only excludes owners of Lock and TryLock.
func (n *Handle) LockShared(ctx context.Context) error {
	return filelock.Until(ctx, n.path, func() (bool, error) {
		err := unix.Flock(n.fd, unix.LOCK_SH|unix.LOCK_NB)
		if err == unix.EWOULDBLOCK || err == unix.EINTR {
			return false, nil
		}
		return err == nil, err
	})
}

// TryLock locks the namespace if nobody has a lock of it.
func (n *Handle) TryLock() (bool, error) { return filelock.Try(n.fd) }

// IsAt reports whether the namespace is at a path.
func (n *Handle) IsAt(path string) bool {
	m, err := Open(path)
	if err != nil {
		return false
	}
	defer m.Close()
	return n.SameAs(m)
}

// Close closes the handle. The namespace exists as long as something else holds it.
func (n *Handle) Close() { _ = unix.Close(n.fd) }

// SameAs reports whether both handles are of one namespace.
func (n *Handle) SameAs(m *Handle) bool {
	var a, b unix.Stat_t
	return unix.Fstat(n.fd, &a) == nil && unix.Fstat(m.fd, &b) == nil && a.Dev == b.Dev && a.Ino == b.Ino
}

// Do runs f on a thread in the namespace. Then the thread returns to its own namespace, also if f panics. While the kernel
// refuses that, for example because it has no memory, Do repeats the return for a second. The runtime ends a thread that
// could not return. Other threads are reused, because a new thread for each call would use several times the processor
// time (BenchmarkDo).
func (n *Handle) Do(f func() error) (err error) {
	runtime.LockOSThread()
	back, err := Current()
	if err == nil {
		defer back.Close()
		err = unix.Setns(n.fd, unix.CLONE_NEWNET)
	}
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter %s: %w", n.path, err)
	}
	defer func() {
		if e := back.enter(); e != nil {
			// The thread stays locked, so the runtime ends it with its goroutine.
			err = errors.Join(err, fmt.Errorf("leave %s: %w", n.path, e))
			return
		}
		runtime.UnlockOSThread()
	}()
	return f()
}

// enter moves the calling thread into the namespace. It repeats a call that fails: what follows on this thread would
// otherwise act in another namespace.
func (n *Handle) enter() error {
	for end := time.Now().Add(time.Second); ; time.Sleep(time.Millisecond) {
		err := unix.Setns(n.fd, unix.CLONE_NEWNET)
		if err == nil || time.Now().After(end) {
			return err
		}
	}
}

// Create creates a network namespace at a path, with lo up, as "ip netns add" does. It lives until Remove. A namespace
// that exists is not an error. MountNS is the path of the mount namespace in which to mount it, such as /proc/1/ns/mnt,
// or "" for the caller's own.
func Create(mountNS, path string) error {
	if ns, err := Open(path); err == nil {
		ns.Close()
		return nil
	}
	if err := InNew(func(c *netlink.Conn) error { return keepNetns(c, mountNS, path) }); err != nil {
		return fmt.Errorf("create network namespace %s: %w", path, err)
	}
	return nil
}

// InNew runs f on a thread of its own in a new namespace, which ends with the call.
func InNew(f func(*netlink.Conn) error) error {
	return OnOwnThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		c, err := netlink.Dial(unix.NETLINK_ROUTE, make([]byte, netlink.BufferSize))
		if err != nil {
			return err
		}
		defer c.Close()
		return f(c)
	})
}

// OnOwnThread runs f on a thread that ends with the call, so f may leave it in other namespaces. A panic of f is an
// error.
func OnOwnThread(f func() error) error {
	done := make(chan error)
	go func() { // the thread stays locked, so it ends with the goroutine
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() { // the main thread never ends, and /proc/PID/ns/net shows its namespace
			defer runtime.UnlockOSThread()
			done <- OnOwnThread(f) // on another thread, because this goroutine has the main one
			return
		}
		var err error
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
			}
			done <- err
		}()
		err = f()
	}()
	return <-done
}

// keepNetns mounts the thread's new network namespace, with lo up. The thread stays in the mount namespace.
func keepNetns(c *netlink.Conn, mountNS, path string) error {
	b := netlink.LinkMessage(0, unix.IFF_UP, unix.IFF_UP)
	b.String(unix.IFLA_IFNAME, "lo")
	if _, err := c.Do([]netlink.Request{{Type: unix.RTM_NEWLINK, Flags: unix.NLM_F_ACK, Body: b}}); err != nil {
		return err
	}
	return mountNetns(mountNS, path)
}

// Keep mounts the namespace at a path, as Create does. If something else is there, it is not changed.
func (n *Handle) Keep(mountNS, path string) error {
	err := OnOwnThread(func() error {
		if err := n.enter(); err != nil {
			return err
		}
		return mountNetns(mountNS, path)
	})
	if err != nil {
		return fmt.Errorf("mount the network namespace %s again: %w", path, err)
	}
	return nil
}

// mountNetns mounts the network namespace of the locked thread.
func mountNetns(mountNS, path string) error {
	if err := enterMounts(mountNS); err != nil {
		return err
	}
	if mountNS != "" { // the caller may not see a namespace that exists there
		if ns, err := Open(path); err == nil {
			ns.Close()
			return nil
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o444)
	if err != nil {
		return err
	}
	f.Close()
	if err := unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, ""); err != nil {
		return errors.Join(&fs.PathError{Op: "mount", Path: path, Err: err}, os.Remove(path))
	}
	return nil
}

// enterMounts moves the locked thread into a mount namespace, for good. It does nothing for "".
func enterMounts(mountNS string) error {
	if mountNS == "" {
		return nil
	}
	f, err := os.Open(mountNS)
	if err != nil {
		return fmt.Errorf("open the mount namespace: %w", err)
	}
	defer f.Close()
	if err := unix.Unshare(unix.CLONE_FS); err != nil { // setns requires it (setns(2))
		return fmt.Errorf("unshare the file system attributes: %w", err)
	}
	if err := unix.Setns(int(f.Fd()), unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("enter the mount namespace %s: %w", mountNS, err)
	}
	return nil
}

// Remove removes a namespace that Create created with the same arguments. The namespace ends when nothing else holds it.
// It returns os.ErrNotExist if nothing is at the path.
func Remove(mountNS, path string) error {
	if mountNS == "" {
		return remove(path)
	}
	return OnOwnThread(func() error {
		if err := enterMounts(mountNS); err != nil {
			return err
		}
		return remove(path)
	})
}

func remove(path string) error {
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && err != unix.EINVAL {
		return &fs.PathError{Op: "unmount", Path: path, Err: err}
	}
	return os.Remove(path)
}
