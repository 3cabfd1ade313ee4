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
	"github.com/fairlead/fairlead/kernel/netns"
)

// inside calls do on a thread in a namespace.
func inside(t *testing.T, nsPath string, do func() error) {
	t.Helper()
	ns, err := netns.Open(nsPath)
	must(t, err)
	defer ns.Close()
	must(t, ns.Do(do))
}

// heard records the payloads of datagrams that arrived at a port of a container.
type heard struct {
	mu    sync.Mutex
	words []string
}

func (h *heard) all() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Compact(slices.Sorted(slices.Values(h.words)))
}

const innerPort = 7777

func (h *heard) listen(t *testing.T, n *lab.Node, container string, port int) {
	t.Helper()
	inside(t, n.Path("/run/netns/"+container), func() error {
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
				h.words = append(h.words, word[strings.LastIndexByte(word, '|')+1:])
				h.mu.Unlock()
			}
		}()
		return nil
	})
}

// udp4 returns a UDP datagram without a checksum, which IPv4 allows.
func udp4(port uint16, payload string) []byte {
	b := binary.BigEndian.AppendUint16([]byte{0x30, 0x39}, port)
	b = binary.BigEndian.AppendUint16(b, uint16(8+len(payload)))
	return append(append(b, 0, 0), payload...)
}

// wrapped is a packet for a container, encapsulated by a container of another network.
type wrapped struct {
	name     string
	netns    string     // the sender's
	by       netip.Addr // the sender's address
	src, dst netip.Addr // outer addresses; src invalid: the sender's own
	to       *lab.Node  // the host of the inner packet's container
	inner    netip.Addr
	pieces   bool // sent as two fragments, the first with only the UDP header
}

func (w wrapped) send(t *testing.T, vni int) {
	t.Helper()
	src := w.src
	if !src.IsValid() {
		src = w.by
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
	inside(t, w.netns, func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		for _, p := range w.split(outer) {
			if err := unix.Sendto(fd, p, 0, &unix.SockaddrInet4{Addr: w.dst.As4()}); err != nil {
				return err
			}
		}
		return nil
	})
}

// split returns the packet's fragments as they are sent (RFC 791, section 3.2).
func (w wrapped) split(packet []byte) [][]byte {
	if !w.pieces {
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

// TestWrapped sends tunnel packets from containers. No host decapsulates them, neither the sender's own host nor
// another one, whatever their source address; other containers receive them unchanged. A host does not decapsulate
// packets from senders outside the cluster either.
func TestWrapped(t *testing.T) {
	t.Parallel()
	t.Run("vxlan", func(t *testing.T) {
		t.Parallel()
		wrappedBy(t, vxlanNet, true)
	})
	t.Run("vxlan without connection tracking", func(t *testing.T) { // connection tracking reassembles fragments
		t.Parallel()
		wrappedBy(t, `{"subnets": [{"cidr": "10.244.0.0/16"}]}`, true)
	})
	t.Run("ipip", func(t *testing.T) {
		t.Parallel()
		kerneltest.Needs(t, "ipip")
		wrappedBy(t, `{"subnets": [{"cidr": "10.244.0.0/16"}], "nat": true, "backends": [{"type": "ipip"}]}`, false)
	})
}

func wrappedBy(t *testing.T, network string, vxlan bool) {
	tracked := strings.Contains(network, "nat")
	c := hosts(t, 3, 1, network)
	a, b, other := c.Nodes[0], c.Nodes[1], c.Nodes[2]
	stranger, err := c.Host(t.Context(), "stranger")
	must(t, err)
	for _, n := range c.Nodes {
		must(t, n.Configure("bridged", `{"type": "bridge", "bridge": "cni0", "isGateway": true, "ipam": {"type": "fairlead-ipam", "routes": [{"dst": "0.0.0.0/0"}]}}`))
	}
	senders := map[string]netip.Addr{"routed": attach(t, a, "routed", "pods"), "bridged": attach(t, a, "bridged", "bridged")}
	victim := attach(t, b, "victim", "pods")
	reach(t, a, "routed", victim)
	reach(t, a, "bridged", victim)
	var got heard
	got.listen(t, b, "victim", 8472)
	vni := 0
	in := map[*lab.Node]netip.Addr{a: senders["routed"], b: victim} // the destinations
	names := map[*lab.Node]string{a: "routed", b: "victim"}
	if vxlan {
		isolatedNets(t, c, "blue --isolated --subnet 10.0.0.0/24", "red --isolated --subnet 10.9.0.0/24 --nat")
		if tracked {
			senders["red"] = attach(t, a, "red", "red")
			reach(t, a, "red", b.V4)
		}
		in, names = map[*lab.Node]netip.Addr{a: attach(t, a, "blue1", "blue"), b: attach(t, b, "blue2", "blue")}, map[*lab.Node]string{a: "blue1", b: "blue2"}
		reach(t, a, "blue1", in[b])
		out, err := a.Cluster(t.Context(), "network", "show", "blue", "--json")
		must(t, err)
		var n struct{ VNI int }
		must(t, json.Unmarshal([]byte(out), &n))
		vni = n.VNI
	}
	for n, name := range names {
		got.listen(t, n, name, innerPort)
	}
	var list []wrapped
	for name, ip := range senders {
		from := wrapped{netns: a.Path("/run/netns/" + name), by: ip}
		add := func(what string, src, dst netip.Addr, to *lab.Node) {
			w := from
			w.name, w.src, w.dst, w.to, w.inner = name+" "+what, src, dst, to, in[to]
			list = append(list, w)
			if !tracked {
				w.name, w.pieces = w.name+" in pieces", true
				list = append(list, w)
			}
		}
		add("to its host", netip.Addr{}, a.V4, a)
		if vxlan { // IPIP has no ports: its host's address is taken, by the host's own tunnel
			add("to another host", netip.Addr{}, b.V4, b)
		}
		add("as a third host to its host", other.V4, a.V4, a)
		add("as a third host to another", other.V4, b.V4, b)
		if vxlan && name != "red" { // IPIP's link has one address; red has no way to another's container network
			gateway, err := b.Run(t.Context(), "sh", "-c", "ip -o -4 addr show dev fl-vx.1 | awk '{print $4}' | cut -d/ -f1")
			must(t, err)
			gw := netip.MustParseAddr(strings.TrimSpace(gateway))
			add("to another host's gateway", netip.Addr{}, gw, b)
			add("as a third host to another's gateway", other.V4, gw, b)
		}
	}
	if vxlan { // what comes by IPIP from elsewhere may be another tunnel's
		list = append(list, wrapped{name: "stranger", netns: stranger.Netns(), by: stranger.V4, dst: b.V4, to: b, inner: in[b]})
	}
	nested := wrapped{name: "nested", netns: a.Path("/run/netns/routed"), by: senders["routed"], dst: victim, to: b, inner: in[b]}
	send := func() []string {
		for _, w := range list {
			w.send(t, vni)
		}
		if vxlan {
			nested.send(t, vni)
			soon(t, func() error {
				if !slices.Contains(got.all(), nested.name) {
					return fmt.Errorf("a container's own tunnel to another container is not let through: %q", got.all())
				}
				return nil
			})
		}
		time.Sleep(kerneltest.Slow(300 * time.Millisecond))
		return slices.DeleteFunc(got.all(), func(s string) bool { return s == nested.name })
	}
	if words := send(); len(words) > 0 {
		t.Errorf("what a container wrapped arrived: %s", strings.Join(words, ", "))
	}
	// Without the rules the packets arrive.
	for _, n := range c.Nodes {
		n.Agent.Signal(syscall.SIGSTOP)
		_, err := n.Run(t.Context(), "nft", "flush", "chain", "inet", backend.Table, "guard")
		must(t, err)
	}
	var words []string
	for _, w := range list {
		words = append(words, w.name)
	}
	slices.Sort(words)
	if open := send(); !slices.Equal(open, words) {
		t.Errorf("without the rules arrived\n%q\nof\n%q", open, words)
	}
	for _, n := range c.Nodes {
		n.Agent.Signal(syscall.SIGCONT)
	}
}
