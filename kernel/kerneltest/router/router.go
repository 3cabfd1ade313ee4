// Package router sends packets through the forward hook of a network namespace, to test rules with the kernel itself.
package router

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/nftable"
)

// Packet is the first packet of a connection. Its fields are those of policy.Packet.
type Packet struct {
	Src, Dst netip.Addr
	Protocol string // "TCP", "UDP", "SCTP" or "ICMP"
	Port     uint16 // destination
}

// Router is a host that forwards packets from one link to another. It has no address itself.
type Router struct {
	t       *testing.T
	Table   *nftable.Programmer
	in, out int // sockets at the far ends of its links
	index   int // of the far end of the first link
	mac     net.HardwareAddr
	number  uint16 // of the last packet
}

// New returns a router. The test must run on a goroutine of its own: its thread stays in the router's namespace.
func New(t *testing.T) *Router {
	kerneltest.Host(t)
	far := kerneltest.Netns(t)
	for _, link := range []string{"left", "right"} {
		kerneltest.Run(t, "ip", "link", "add", link, "type", "veth", "peer", "name", link, "netns", far)
		kerneltest.Run(t, "ip", "link", "set", link, "up", "arp", "off")
		kerneltest.In(t, far, "ip", "link", "set", link, "up", "arp", "off")
	}
	for _, key := range []string{"ipv4.ip_forward=1", "ipv6.conf.all.forwarding=1", "ipv4.conf.all.rp_filter=0", "ipv4.conf.left.rp_filter=0"} {
		kerneltest.Run(t, "sysctl", "-qw", "net."+key)
	}
	kerneltest.Run(t, "ip", "route", "add", "default", "dev", "right")
	kerneltest.Run(t, "ip", "-6", "route", "add", "default", "dev", "right")
	left, err := net.InterfaceByName("left")
	must(t, err)
	p, err := nftable.Open()
	must(t, err)
	t.Cleanup(p.Close)
	r := &Router{t: t, Table: p, mac: left.HardwareAddr}
	must(t, kerneltest.Inside(far, func() error {
		if r.in, r.index, err = packetSocket("left"); err == nil {
			r.out, _, err = packetSocket("right")
		}
		return err
	}))
	t.Cleanup(func() { _, _ = unix.Close(r.in), unix.Close(r.out) })
	return r
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// packetSocket opens a socket for the frames of a link.
func packetSocket(link string) (fd, index int, err error) {
	l, err := net.InterfaceByName(link)
	if err != nil {
		return 0, 0, err
	}
	all := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, unix.ETH_P_ALL))
	fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(all))
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: l.Index})
	}
	if err == nil {
		err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10})
	}
	return fd, l.Index, err
}

// Send sends packets, and reports which of them the router forwarded.
func (r *Router) Send(packets []Packet) map[Packet]bool {
	r.t.Helper()
	passed := map[Packet]bool{}
	for few := range slices.Chunk(packets, atOnce) {
		r.send(few, passed)
	}
	return passed
}

// atOnce is a number of packets that fits into the queues on the way.
const atOnce = 64

// send sends packets, and adds those that the router forwarded.
func (r *Router) send(packets []Packet, passed map[Packet]bool) {
	r.t.Helper()
	numbers := map[uint16]Packet{}
	for _, p := range packets {
		numbers[r.one(p)] = p
	}
	// No policy is about this packet. A packet that has not arrived before it was dropped.
	last := r.one(Packet{Src: netip.MustParseAddr("198.51.100.1"), Dst: netip.MustParseAddr("198.51.100.2"), Protocol: "UDP", Port: 9})
	for end := time.Now().Add(kerneltest.Slow(10 * time.Second)); time.Now().Before(end); {
		frame := make([]byte, 2048)
		n, err := unix.Read(r.out, frame)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			break
		}
		number := numberOf(frame[:n])
		if number == last {
			return
		}
		if p, sent := numbers[number]; sent {
			passed[p] = true
		}
	}
	r.t.Fatal("the last packet did not arrive")
}

func (r *Router) one(p Packet) (number uint16) {
	r.t.Helper()
	if r.number++; r.number == 0 {
		r.number++
	}
	must(r.t, unix.Sendto(r.in, frameOf(r.mac, p, r.number), 0, &unix.SockaddrLinklayer{Ifindex: r.index, Halen: 6}))
	return r.number
}

// frameOf returns a packet in a frame. Its number is the identification of an IPv4 packet, or the flow label of IPv6; and
// the source port, so that each packet is the first of a connection.
func frameOf(mac net.HardwareAddr, p Packet, number uint16) []byte {
	payload := binary.BigEndian.AppendUint16(nil, number)
	payload = binary.BigEndian.AppendUint16(payload, p.Port)
	payload = append(payload, make([]byte, 24)...)
	protocol := map[string]byte{"TCP": unix.IPPROTO_TCP, "UDP": unix.IPPROTO_UDP, "SCTP": unix.IPPROTO_SCTP}[p.Protocol]
	switch p.Protocol {
	case "TCP":
		payload[12], payload[13] = 5<<4, 1<<1 // 5 words, SYN
	case "UDP":
		binary.BigEndian.PutUint16(payload[4:], uint16(len(payload)))
	case "ICMP":
		payload[0], payload[1], payload[2], payload[3] = 8, 0, 0, 0 // echo request
		protocol = unix.IPPROTO_ICMP
		if p.Src.Is6() {
			payload[0], protocol = 128, unix.IPPROTO_ICMPV6
		}
		binary.BigEndian.PutUint16(payload[4:], number)
	}
	frame := append(append([]byte{}, mac...), 2, 0, 0, 0, 0, 1)
	if p.Src.Is6() {
		frame = append(frame, 0x86, 0xdd, 6<<4, 0)
		frame = binary.BigEndian.AppendUint16(frame, number)
		frame = binary.BigEndian.AppendUint16(frame, uint16(len(payload)))
		frame = append(append(append(frame, protocol, 64), p.Src.AsSlice()...), p.Dst.AsSlice()...)
		return append(frame, payload...)
	}
	header := []byte{4<<4 | 5, 0}
	header = binary.BigEndian.AppendUint16(header, uint16(20+len(payload)))
	header = binary.BigEndian.AppendUint16(header, number)
	header = append(append(append(header, 0, 0, 64, protocol, 0, 0), p.Src.AsSlice()...), p.Dst.AsSlice()...)
	binary.BigEndian.PutUint16(header[10:], checksum(header))
	return append(append(append(frame, 0x08, 0x00), header...), payload...)
}

// checksum returns the Internet checksum, RFC 1071.
func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

func numberOf(frame []byte) uint16 {
	switch {
	case len(frame) >= 34 && frame[12] == 0x08 && frame[13] == 0:
		return binary.BigEndian.Uint16(frame[18:])
	case len(frame) >= 54 && frame[12] == 0x86 && frame[13] == 0xdd:
		return binary.BigEndian.Uint16(frame[16:])
	}
	return 0
}

// Sendable reports whether a router forwards packets with an address.
func Sendable(a netip.Addr) bool {
	return a.IsGlobalUnicast() && (a.Is6() || a.As4()[0] != 0 && a.As4()[0] < 224)
}
