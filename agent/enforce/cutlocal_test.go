package enforce

import (
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestMulticastIsNotCut checks that a pod which may send nothing to others still reaches its node by multicast and by
// broadcast when another connection is cut: the rules allow that.
func TestMulticastIsNotCut(t *testing.T) {
	t.Parallel()
	n := newCutNode(t)
	a, b := n.pod("a", 1), n.pod("b", 2)
	kerneltest.In(t, a.netns, "ip", "route", "add", "224.0.0.0/4", "dev", "eth0")
	kerneltest.In(t, a.netns, "ip", "route", "add", "255.255.255.255", "dev", "eth0")
	link, err := net.InterfaceByName("pod-a")
	must(t, err)
	group := &net.UDPAddr{IP: net.IPv4(224, 0, 0, 251), Port: 5353}
	members, err := net.ListenMulticastUDP("udp4", link, group)
	must(t, err)
	all, err := net.ListenPacket("udp4", ":67")
	must(t, err)
	var flows []*flow
	for _, f := range []*flow{{to: members}, {to: all}} {
		f.t = t
		must(t, kerneltest.Inside(a.netns, func() (err error) {
			f.from, err = net.ListenPacket("udp4", ":0")
			return err
		}))
		t.Cleanup(func() { f.from.Close(); f.to.Close() })
		flows = append(flows, f)
	}
	flows[0].start(group)
	flows[1].start(&net.UDPAddr{IP: net.IPv4bcast, Port: 67})
	c := a.connect(b, netip.AddrPortFrom(b.addrs[0], 80))
	n.policy("closed", noEgress)
	kerneltest.Until(t, func() bool { return n.cutNow() > 0 })
	c.silent(c.server)
	for _, f := range flows {
		f.arrives()
	}
}

// TestLocalRouteIsNotCut checks that a pod which may send nothing to others keeps its connection to an address that its node
// has by a local route: the rules allow it. Such a route for marked packets does not count.
func TestLocalRouteIsNotCut(t *testing.T) {
	t.Parallel()
	n := newCutNode(t)
	a, b := n.pod("a", 1), n.pod("b", 2)
	node := &cutPod{n: n, name: "node", netns: fmt.Sprintf("/proc/self/task/%d/ns/net", syscall.Gettid())}
	var own []*conn
	kerneltest.Run(t, "ip", "route", "add", "local", "198.18.7.0/24", "dev", "lo")
	kerneltest.Run(t, "ip", "route", "add", "local", "fd77::/64", "dev", "lo")
	kerneltest.Run(t, "ip", "route", "add", "local", "default", "dev", "lo", "table", "100")
	kerneltest.Run(t, "ip", "route", "add", "local", "198.18.8.1", "dev", "lo") // as a cloud's agent for a load balancer
	kerneltest.Run(t, "ip", "route", "add", "local", "fd78::1", "dev", "lo")
	for _, to := range []string{"198.18.7.9", "fd77::9", "198.18.8.1", "fd78::1"} {
		own = append(own, a.connect(node, netip.AddrPortFrom(netip.MustParseAddr(to), 80)))
	}
	other := a.connect(b, netip.AddrPortFrom(b.addrs[0], 81))
	n.policy("closed", noEgress)
	n.cuts(1)
	send(t, other.client)
	other.silent(other.server)
	for _, c := range own {
		c.passes(c.client, c.server)
		c.passes(c.server, c.client)
	}
}
