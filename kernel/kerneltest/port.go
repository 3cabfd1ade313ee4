package kerneltest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
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
		l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(free))
		if err == nil {
			l.Close()
			return free
		}
	}
	t.Fatal("no free port from 20000 to 31999")
	return netip.AddrPort{}
}
