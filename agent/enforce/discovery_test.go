package enforce

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestRoutedDiscovery checks that a pod which may send nothing cannot send data in messages of neighbour discovery or
// multicast listener discovery past its node. Without a policy, the node forwards them. Its neighbour, the node, still answers.
func TestRoutedDiscovery(t *testing.T) {
	t.Parallel()
	n := newCutNode(t)
	a, b := n.pod("a", 1), n.pod("b", 2)
	kerneltest.In(t, a.netns, "ping", "-6", "-c1", "-W5", b.addrs[1].String())
	if got := a.sendsDiscovery(b); len(got) == 0 {
		t.Fatal("without a policy, no message arrives")
	}
	n.policy("egress", noEgress)
	n.written()
	if got := a.sendsDiscovery(b); len(got) > 0 {
		t.Errorf("these messages arrive, as TYPE/HOP LIMIT: %s", got)
	}
	kerneltest.In(t, a.netns, "ip", "-6", "neigh", "flush", "dev", "eth0")
	kerneltest.In(t, a.netns, "ping", "-6", "-c1", "-W5", "fe80::1%eth0")
}

// sendsDiscovery sends a message of each type with several hop limits, and returns those that arrive.
func (p *cutPod) sendsDiscovery(to *cutPod) (arrived []string) {
	t := p.n.t
	t.Helper()
	socket := func(at *cutPod) (c net.PacketConn) {
		must(t, kerneltest.Inside(at.netns, func() (err error) {
			c, err = net.ListenPacket("ip6:ipv6-icmp", "::")
			return err
		}))
		t.Cleanup(func() { c.Close() })
		return c
	}
	from, at := socket(p), socket(to)
	for _, hops := range []int{2, 3, 64, 255} {
		kerneltest.In(t, p.netns, "sysctl", "-qw", fmt.Sprint("net.ipv6.conf.eth0.hop_limit=", hops))
		for _, typ := range []byte{130, 131, 132, 133, 134, 135, 136, 137, 143} {
			message := append([]byte{typ, 0, 0, 0}, fmt.Sprintf("secret %d/%d", typ, hops)...)
			_, err := from.WriteTo(message, &net.IPAddr{IP: to.addrs[1].AsSlice()})
			must(t, err)
		}
	}
	must(t, at.SetReadDeadline(time.Now().Add(kerneltest.Slow(time.Second))))
	for {
		b := make([]byte, 100)
		size, _, err := at.ReadFrom(b)
		if os.IsTimeout(err) {
			return arrived
		}
		must(t, err)
		if _, secret, is := strings.Cut(string(b[:size]), "secret "); is {
			arrived = append(arrived, secret)
		}
	}
}
