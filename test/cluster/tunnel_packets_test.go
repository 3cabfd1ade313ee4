package cluster

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/agent/backend"
	"github.com/fairlead/fairlead/internal/hwaddr"
	"github.com/fairlead/fairlead/internal/lab"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// receiver records the payloads of datagrams that arrive at a port of a container.
type receiver struct {
	mu       sync.Mutex
	payloads []string
}

func (h *receiver) received() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Compact(slices.Sorted(slices.Values(h.payloads)))
}

const innerPort = 7777

func (h *receiver) listen(t *testing.T, n *lab.Node, container string, port int) {
	t.Helper()
	must(t, kerneltest.Inside(n.Path("/run/netns/"+container), func() error {
		c, err := net.ListenPacket("udp4", fmt.Sprint(":", port))
		if err != nil {
			return err
		}
		t.Cleanup(func() { c.Close() })
		go func() {
			b := make([]byte, 2000)
			for {
				size, _, err := c.ReadFrom(b)
				if err != nil {
					return
				}
				word := string(b[:size])
				h.mu.Lock()
				h.payloads = append(h.payloads, word[strings.LastIndexByte(word, '|')+1:])
				h.mu.Unlock()
			}
		}()
		return nil
	}))
}

// udp4 returns a UDP datagram without a checksum, which IPv4 allows.
func udp4(port uint16, payload string) []byte {
	b := binary.BigEndian.AppendUint16([]byte{0x30, 0x39}, port)
	b = binary.BigEndian.AppendUint16(b, uint16(8+len(payload)))
	return append(append(b, 0, 0), payload...)
}

// tunnelPacket is a packet that a container sends. It is encapsulated for a container of another network.
type tunnelPacket struct {
	name       string
	netns      string     // the sender's
	sender     netip.Addr // the sender's address
	src, dst   netip.Addr // outer addresses; an invalid src means the sender's own
	to         *lab.Node  // the host of the inner packet's container
	inner      netip.Addr
	fragmented bool // sent as two fragments, the first with only the UDP header
}

func (w tunnelPacket) send(t *testing.T, vni int) {
	t.Helper()
	src := w.src
	if !src.IsValid() {
		src = w.sender
	}
	packet := kerneltest.IPv4(netip.MustParseAddr("10.0.0.200"), w.inner, unix.IPPROTO_UDP, udp4(innerPort, "|"+w.name))
	outer := kerneltest.IPv4(src, w.dst, unix.IPPROTO_IPIP, packet)
	if vni != 0 {
		hw, err := hwaddr.Parse(backend.VXLANMAC(w.to.Name, vni))
		must(t, err)
		frame := append(append(slices.Clone(hw), 2, 0, 0, 0, 0, 7, 8, 0), packet...)
		head := binary.BigEndian.AppendUint32([]byte{8, 0, 0, 0}, uint32(vni)<<8) // RFC 7348, section 5
		outer = kerneltest.IPv4(src, w.dst, unix.IPPROTO_UDP, udp4(8472, string(head)+string(frame)))
	}
	must(t, kerneltest.Inside(w.netns, func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		for _, p := range w.fragments(outer) {
			if err := unix.Sendto(fd, p, 0, &unix.SockaddrInet4{Addr: w.dst.As4()}); err != nil {
				return err
			}
		}
		return nil
	}))
}

// fragments returns the packet's fragments as they are sent (RFC 791, section 3.2).
func (w tunnelPacket) fragments(packet []byte) [][]byte {
	if !w.fragmented {
		return [][]byte{packet}
	}
	const header, first, more = 20, 8, 0x2000
	head, rest := slices.Clone(packet[:header+first]), append(slices.Clone(packet[:header]), packet[header+first:]...)
	for _, p := range [][]byte{head, rest} {
		binary.BigEndian.PutUint16(p[4:], uint16(crc32.ChecksumIEEE([]byte(w.name)))) // identifies the packet
	}
	binary.BigEndian.PutUint16(head[6:], more)
	binary.BigEndian.PutUint16(rest[6:], first/8)
	return [][]byte{head, rest}
}

// TestContainerTunnelPacketsDropped sends tunnel packets from containers. No host decapsulates them, neither the
// sender's own host nor another one, whatever their source address; other containers receive them unchanged. A host
// does not decapsulate packets from senders outside the cluster either.
func TestContainerTunnelPacketsDropped(t *testing.T) {
	t.Parallel()
	t.Run("vxlan", func(t *testing.T) {
		t.Parallel()
		testTunnelPackets(t, vxlanNet, true)
	})
	t.Run("vxlan without connection tracking", func(t *testing.T) { // connection tracking reassembles fragments
		t.Parallel()
		testTunnelPackets(t, `{"subnets": [{"cidr": "10.244.0.0/16"}]}`, true)
	})
	t.Run("ipip", func(t *testing.T) {
		t.Parallel()
		kerneltest.Needs(t, "ipip")
		testTunnelPackets(t, `{"subnets": [{"cidr": "10.244.0.0/16"}], "nat": true, "backends": [{"type": "ipip"}]}`, false)
	})
}

func testTunnelPackets(t *testing.T, network string, vxlan bool) {
	tracked := strings.Contains(network, "nat")
	c := newCluster(t, 3, 1, network)
	a, b, other := c.Nodes[0], c.Nodes[1], c.Nodes[2]
	outsider, err := c.Host(t.Context(), "outsider")
	must(t, err)
	for _, n := range c.Nodes {
		must(t, n.Configure("bridged", `{"type": "bridge", "bridge": "cni0", "isGateway": true, "ipam": {"type": "fairlead-ipam", "routes": [{"dst": "0.0.0.0/0"}]}}`))
	}
	senders := map[string]netip.Addr{"routed": attach(t, a, "routed", "pods"), "bridged": attach(t, a, "bridged", "bridged")}
	victim := attach(t, b, "victim", "pods")
	wantReach(t, a, "routed", victim)
	wantReach(t, a, "bridged", victim)
	var got receiver
	got.listen(t, b, "victim", 8472)
	vni := 0
	targets := map[*lab.Node]netip.Addr{a: senders["routed"], b: victim} // destinations of the inner packets
	containers := map[*lab.Node]string{a: "routed", b: "victim"}
	if vxlan {
		isolatedNets(t, c, "blue --isolated --subnet 10.0.0.0/24", "red --isolated --subnet 10.9.0.0/24 --nat")
		if tracked {
			senders["red"] = attach(t, a, "red", "red")
			wantReach(t, a, "red", b.V4)
		}
		targets, containers = map[*lab.Node]netip.Addr{a: attach(t, a, "blue1", "blue"), b: attach(t, b, "blue2", "blue")}, map[*lab.Node]string{a: "blue1", b: "blue2"}
		wantReach(t, a, "blue1", targets[b])
		out, err := a.Cluster(t.Context(), "network", "show", "blue", "--json")
		must(t, err)
		var n struct{ VNI int }
		must(t, json.Unmarshal([]byte(out), &n))
		vni = n.VNI
	}
	for n, name := range containers {
		got.listen(t, n, name, innerPort)
	}
	var list []tunnelPacket
	for name, ip := range senders {
		from := tunnelPacket{netns: a.Path("/run/netns/" + name), sender: ip}
		add := func(what string, src, dst netip.Addr, to *lab.Node) {
			w := from
			w.name, w.src, w.dst, w.to, w.inner = name+" "+what, src, dst, to, targets[to]
			list = append(list, w)
			if !tracked {
				w.name, w.fragmented = w.name+" in fragments", true
				list = append(list, w)
			}
		}
		add("to its host", netip.Addr{}, a.V4, a)
		if vxlan { // IPIP has no ports to masquerade with, and the host's own tunnel already uses the host's address
			add("to another host", netip.Addr{}, b.V4, b)
		}
		add("as a third host to its host", other.V4, a.V4, a)
		add("as a third host to another", other.V4, b.V4, b)
		if vxlan && name != "red" { // IPIP's link has one address; red has no route to the container network of other hosts
			gateway, err := b.Run(t.Context(), "sh", "-c", "ip -o -4 addr show dev fl-vx.1 | awk '{print $4}' | cut -d/ -f1")
			must(t, err)
			gw := netip.MustParseAddr(strings.TrimSpace(gateway))
			add("to another host's gateway", netip.Addr{}, gw, b)
			add("as a third host to another's gateway", other.V4, gw, b)
		}
	}
	if vxlan { // IPIP packets from elsewhere may belong to another tunnel
		list = append(list, tunnelPacket{name: "outsider", netns: outsider.Netns(), sender: outsider.V4, dst: b.V4, to: b, inner: targets[b]})
	}
	nested := tunnelPacket{name: "nested", netns: a.Path("/run/netns/routed"), sender: senders["routed"], dst: victim, to: b, inner: targets[b]}
	arrived := func() []string {
		return slices.DeleteFunc(got.received(), func(s string) bool { return s == nested.name })
	}
	send := func() {
		for _, w := range list {
			w.send(t, vni)
		}
		if vxlan {
			nested.send(t, vni)
			kerneltest.Eventually(t, func() error {
				if !slices.Contains(got.received(), nested.name) {
					return fmt.Errorf("the tunnel packet from container to container did not arrive: %q", got.received())
				}
				return nil
			})
		}
	}
	send()
	time.Sleep(kerneltest.Slow(300 * time.Millisecond))
	if names := arrived(); len(names) > 0 {
		t.Errorf("tunnel packets from containers arrived: %s", strings.Join(names, ", "))
	}
	// Without the rules the packets arrive.
	for _, n := range c.Nodes {
		n.Agent.Signal(syscall.SIGSTOP)
		_, err := n.Run(t.Context(), "nft", "flush", "chain", "inet", backend.Table, "guard")
		must(t, err)
	}
	var names []string
	for _, w := range list {
		names = append(names, w.name)
	}
	slices.Sort(names)
	kerneltest.Eventually(t, func() error {
		send()
		if list := arrived(); !slices.Equal(list, names) {
			return fmt.Errorf("without the rules, these arrived:\n%q\nwant\n%q", list, names)
		}
		return nil
	})
	for _, n := range c.Nodes {
		n.Agent.Signal(syscall.SIGCONT)
	}
}
