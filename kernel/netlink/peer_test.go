package netlink_test

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

func TestTCPOwner(t *testing.T) {
	t.Parallel()
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		local, remote := c.LocalAddr().(*net.TCPAddr).AddrPort(), c.RemoteAddr().(*net.TCPAddr).AddrPort()
		if uid, err := netlink.TCPOwner(local, remote); err != nil || int(uid) != os.Getuid() {
			t.Errorf("the owner of the connection to %s is %d: %v", remote, uid, err)
		}
		other := netip.AddrPortFrom(local.Addr(), 1)
		if uid, err := netlink.TCPOwner(other, remote); !errors.Is(err, unix.ENOENT) {
			t.Errorf("a connection that does not exist belongs to %d: %v", uid, err)
		}
	}
}
