package kerneltest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// FreePort returns a TCP port on which nothing listens at an address of loopback. It is below the kernel's default range
// for outgoing connections and for listeners that ask for any port, so nobody takes it by chance before the test listens.
// A socket whose name has the port reserves it among tests until the test ends.
func FreePort(t testing.TB, host string) netip.AddrPort {
	t.Helper()
	address := netip.MustParseAddr(host)
	for range 100 {
		port := 20000 + rand.IntN(12000)
		reserved, err := net.Listen("unix", fmt.Sprintf("@fairlead-test-port-%d", port))
		if err != nil {
			continue
		}
		t.Cleanup(func() { reserved.Close() })
		free := netip.AddrPortFrom(address, uint16(port))
		if canListen(free) == nil {
			return free
		}
	}
	t.Fatal("no free port from 20000 to 31999")
	return netip.AddrPort{}
}

// canListen returns an error if something listens at an address. It only binds a socket: a process that another test
// starts at this moment has a copy of it for a while, and a copy that listens would keep the port taken.
func canListen(at netip.AddrPort) error {
	family, name := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()})
	if at.Addr().Is4() {
		family, name = unix.AF_INET, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return err
	}
	return unix.Bind(fd, name)
}
