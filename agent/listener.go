package agent

import (
	"net"
	"net/netip"
	"sync"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// maxConnections limits the open connections, once for root on this host and once for everybody else: anyone who reaches
// the address can open one, and the agent needs its file descriptors. The kubelet and other services that ask for the
// agent's health are root.
const maxConnections = 64

// limitedListener is a listener with a maximum number of open connections. It closes those beyond at once.
type limitedListener struct {
	net.Listener
	mu   sync.Mutex
	open map[bool]int // by whether root opened them
}

func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		root := fromRoot(c)
		if l.count(root, 1) {
			return &limitedConn{Conn: c, leave: sync.OnceFunc(func() { l.count(root, -1) })}, nil
		}
		_ = c.Close()
	}
}

// count adds to the number of open connections, if that stays within the maximum.
func (l *limitedListener) count(root bool, n int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[root]+n > maxConnections {
		return false
	}
	l.open[root] += n
	return true
}

// fromRoot reports whether a process of root on this host opened the connection. A container's root counts only if the
// container shares the host's network and user namespaces.
func fromRoot(c net.Conn) bool {
	own, ok1 := c.LocalAddr().(*net.TCPAddr)
	peer, ok2 := c.RemoteAddr().(*net.TCPAddr)
	if !ok1 || !ok2 {
		return false
	}
	to, from := addrPort(own), addrPort(peer)
	if to.Addr() != from.Addr() && !from.Addr().IsLoopback() {
		return false
	}
	uid, err := netlink.TCPOwner(from, to)
	return err == nil && uid == 0
}

func addrPort(a *net.TCPAddr) netip.AddrPort {
	p := a.AddrPort()
	return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
}

type limitedConn struct {
	net.Conn
	leave func()
}

func (c *limitedConn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
