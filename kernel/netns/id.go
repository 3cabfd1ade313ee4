package netns

import (
	"fmt"
	"math"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// ID identifies a network namespace in a record, without keeping it alive.
type ID struct {
	// File is the device and inode of the namespace, as "DEVICE:INODE". It is "" if there was no namespace. The kernel
	// uses an inode again soon after its namespace ended.
	File string
	// Cookie is a number that the kernel uses once per boot. It is 0 if it is unknown: kernels before 5.14 have none, and
	// records of earlier versions of Fairlead lack it.
	Cookie uint64
}

// checkFactor is a prime. A file has the cookie as a multiple of it, so that a damaged digit does not make a namespace look
// like another one: DEL would leave everything in it.
const checkFactor = 1_000_003

// StoredCookie returns the cookie as a file has it. It is 0 if the cookie is unknown or too large.
func (a ID) StoredCookie() uint64 {
	if a.Cookie > math.MaxUint64/checkFactor {
		return 0
	}
	return a.Cookie * checkFactor
}

// FromStored returns the ID in a file. A damaged cookie counts as unknown.
func FromStored(file string, stored uint64) ID {
	if stored%checkFactor != 0 {
		stored = 0
	}
	return ID{File: file, Cookie: stored / checkFactor}
}

// Same reports whether both IDs are of one namespace. Without both cookies it compares only device and inode.
func (a ID) Same(b ID) bool {
	return a.File != "" && a.File == b.File && (a.Cookie == 0 || b.Cookie == 0 || a.Cookie == b.Cookie)
}

// IDAt returns the ID of the namespace at a path, or the zero ID if nothing is there.
func IDAt(path string) ID {
	var st unix.Stat_t
	if path == "" || unix.Stat(path, &st) != nil {
		return ID{}
	}
	n, err := Open(path)
	if err != nil {
		return ID{File: fileID(&st)}
	}
	defer n.Close()
	id, err := n.ID()
	if err != nil {
		return ID{File: fileID(&st)}
	}
	return id
}

// IsAt reports whether the namespace is at a path. It opens the path only if device and inode match. An error is from
// stat(2).
func (a ID) IsAt(path string) (bool, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return false, err
	}
	if a.File != fileID(&st) || a.Cookie == 0 {
		return a.Same(ID{File: fileID(&st)}), nil
	}
	return a.Same(IDAt(path)), nil
}

// ID returns the namespace's ID.
func (n *Handle) ID() (ID, error) {
	return n.IDFrom(func() (c *netlink.Conn, done func(), err error) {
		err = n.Do(func() (err error) {
			c, err = netlink.Dial(unix.NETLINK_ROUTE, nil)
			return err
		})
		return c, c.Close, err
	})
}

// IDFrom is ID for a caller that has a socket in the namespace, or will need one anyway. It calls socket only if the
// kernel cannot tell the cookie of an open namespace.
func (n *Handle) IDFrom(socket func() (c *netlink.Conn, done func(), err error)) (ID, error) {
	var st unix.Stat_t
	if err := unix.Fstat(n.fd, &st); err != nil {
		return ID{}, fmt.Errorf("stat %s: %w", n.path, err)
	}
	return ID{File: fileID(&st), Cookie: n.cookie(socket)}, nil
}

// cookie returns the namespace's cookie, or 0 if it cannot be read. From kernel 6.18 on, the ID of a network namespace
// is its cookie. Earlier kernels tell the cookie only to a socket inside.
func (n *Handle) cookie(socket func() (*netlink.Conn, func(), error)) uint64 {
	var id uint64
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(n.fd), unix.NS_GET_ID, uintptr(unsafe.Pointer(&id)))
	if errno == 0 && id != 0 {
		return id
	}
	c, done, err := socket()
	if err != nil {
		return 0
	}
	defer done()
	return socketCookie(c)
}

// socketCookie returns the cookie of the namespace that a socket was opened in, or 0 before kernel 5.14.
func socketCookie(c *netlink.Conn) uint64 {
	cookie, err := unix.GetsockoptUint64(c.FD(), unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		return 0
	}
	return cookie
}

func fileID(st *unix.Stat_t) string {
	return strconv.FormatUint(st.Dev, 10) + ":" + strconv.FormatUint(st.Ino, 10)
}
