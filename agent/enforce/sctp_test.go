package enforce

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// listen listens in a pod, for TCP or SCTP.
func (p *cutPod) listen(protocol string, at netip.AddrPort) (l net.Listener) {
	p.n.t.Helper()
	must(p.n.t, kerneltest.Inside(p.netns, func() (err error) {
		if protocol == "SCTP" {
			l, err = kerneltest.ListenSCTP(at)
		} else {
			l, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
		}
		return err
	}))
	p.n.t.Cleanup(func() { l.Close() })
	return l
}

// dial opens a connection from a pod.
func (p *cutPod) dial(protocol string, to netip.AddrPort, limit time.Duration) (c net.Conn, err error) {
	err = kerneltest.Inside(p.netns, func() (err error) {
		if protocol == "SCTP" {
			c, err = kerneltest.DialSCTP(to, limit)
		} else {
			c, err = net.DialTimeout("tcp", to.String(), limit)
		}
		return err
	})
	return c, err
}

// TestSCTPIsNotTCP opens connections of TCP and SCTP to the same ports. A policy allows a port for TCP, one for SCTP,
// and one for both.
func TestSCTPIsNotTCP(t *testing.T) {
	t.Parallel()
	kerneltest.Needs(t, "SCTP")
	n := newCutNode(t)
	a, b := n.pod("a", 1), n.pod("b", 2)
	n.policy("ports", `{podSelector: {matchLabels: {app: b}}, policyTypes: [Ingress], ingress: [{ports: [{port: 80}, {protocol: SCTP, port: 81}, {port: 82}, {protocol: SCTP, port: 82}]}]}`)
	n.written()
	for _, addr := range b.addrs {
		for _, c := range []struct {
			port      uint16
			tcp, sctp bool
		}{{80, true, false}, {81, false, true}, {82, true, true}, {83, false, false}} {
			to := netip.AddrPortFrom(addr, c.port)
			for protocol, want := range map[string]bool{"TCP": c.tcp, "SCTP": c.sctp} {
				b.listen(protocol, to)
				limit := 500 * time.Millisecond
				if want {
					limit = kerneltest.Slow(10 * time.Second)
				}
				conn, err := a.dial(protocol, to, limit)
				var timeout net.Error
				if lost := errors.Is(err, syscall.EINPROGRESS) || errors.As(err, &timeout) && timeout.Timeout(); (err == nil) != want || !want && !lost {
					t.Errorf("%s to %s: %v, want an answer: %v", protocol, to, err, want)
				}
				if conn != nil {
					conn.Close()
				}
			}
		}
	}
}

// TestCutSCTP cuts associations of SCTP, of which then only one end sends. One that policy allows goes on. When policy
// allows the others again, they go on.
func TestCutSCTP(t *testing.T) {
	t.Parallel()
	kerneltest.Needs(t, "SCTP")
	for _, closed := range []string{noIngress, noEgress} {
		for family := range 2 {
			t.Run(fmt.Sprint(closed, family), func(t *testing.T) {
				t.Parallel()
				n := newCutNode(t)
				a, b, other := n.pod("a", 1), n.pod("b", 2), n.pod("c", 3)
				cut := []*conn{a.associate(b, family, 80), a.associate(b, family, 81)}
				allowed := b.associate(other, family, 80)
				n.cutsOneWay(closed, cut, allowed)
			})
		}
	}
}

// associate opens an association of SCTP to a port of a server.
func (p *cutPod) associate(server *cutPod, family int, port uint16) *conn {
	t := p.n.t
	t.Helper()
	to := netip.AddrPortFrom(server.addrs[family], port)
	l := server.listen("SCTP", to)
	c := &conn{t: t}
	var err error
	c.client, err = p.dial("SCTP", to, kerneltest.Slow(10*time.Second))
	must(t, err)
	c.server, err = l.Accept()
	must(t, err)
	t.Cleanup(func() { c.client.Close(); c.server.Close() })
	c.passes(c.client, c.server)
	c.passes(c.server, c.client)
	return c
}
