package packet_test

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/netns"
	"github.com/fairlead/fairlead/kernel/packet"
)

// pair creates two connected links. It returns the host, the index of one link, and a socket on the other.
func pair(t *testing.T) (ns *netns.Handle, near int, from *packet.Socket) {
	t.Helper()
	kerneltest.Host(t)
	kerneltest.Run(t, "ip", "link", "add", "near", "up", "type", "veth", "peer", "name", "far")
	kerneltest.Run(t, "ip", "link", "set", "far", "up")
	ns, err := netns.Current()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	index := func(name string) int {
		i, err := net.InterfaceByName(name)
		must(t, err)
		return i.Index
	}
	from, err = packet.OpenFrames(ns, index("far"), 9)
	must(t, err)
	t.Cleanup(from.Close)
	return ns, index("near"), from
}

// TestFramesOfOnePort checks that a socket for a UDP port receives only the first fragments of packets to it.
func TestFramesOfOnePort(t *testing.T) {
	t.Parallel()
	ns, near, from := pair(t)
	s, err := packet.OpenFrames(ns, near, 68)
	must(t, err)
	defer s.Close()
	send := func(mark byte, proto byte, port, fragment uint16, options ...byte) {
		t.Helper()
		payload := append(binary.BigEndian.AppendUint16([]byte{0, 67}, port), 0, 9, 0, 0, mark)
		ip := kerneltest.IPv4(netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"), proto, append(options, payload...))
		ip[0] += byte(len(options) / 4)
		binary.BigEndian.PutUint16(ip[6:], fragment)
		frame := append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 8, 0}, ip...)
		if err := from.SendFrame(frame); err != nil {
			t.Fatal(err)
		}
	}
	send(1, unix.IPPROTO_TCP, 68, 0)
	send(2, unix.IPPROTO_UDP, 67, 0)
	send(3, unix.IPPROTO_UDP, 68, 100) // a later fragment has no ports
	send(4, unix.IPPROTO_UDP, 68, 0)
	send(5, unix.IPPROTO_UDP, 68, 0x2000) // the first of several
	send(6, unix.IPPROTO_UDP, 68, 0x4000, 1, 1, 1, 1)
	for _, want := range []byte{4, 5, 6} {
		b := make([]byte, 200)
		n, _, err := s.Receive(t.Context(), b, time.Now().Add(kerneltest.Slow(5*time.Second)))
		if err != nil || b[n-1] != want {
			t.Errorf("frame %d of %d bytes arrived, want frame %d: %v", b[max(n-1, 0)], n, want, err)
		}
	}
}

// TestOnlyNeighbours checks that an ICMPv6 socket ignores messages with a hop limit that a router may have decreased.
func TestOnlyNeighbours(t *testing.T) {
	t.Parallel()
	ns, near, from := pair(t)
	const advertisement = 134
	s, err := packet.OpenICMP6(ns, near, advertisement)
	must(t, err)
	defer s.Close()
	b := make([]byte, 200)
	kerneltest.Within(t, 5*time.Second, func() error { // the kernel drops messages until IPv6 is ready on the link
		for mark, hops := range map[byte]byte{1: 254, 2: 64} {
			must(t, from.SendFrame(message(advertisement, hops, mark)))
		}
		must(t, from.SendFrame(message(advertisement+1, 255, 3)))
		must(t, from.SendFrame(message(advertisement, 255, 4)))
		n, addr, err := s.Receive(t.Context(), b, time.Now().Add(200*time.Millisecond))
		if err == nil && (n != 8 || b[7] != 4 || addr != netip.MustParseAddr("fe80::1")) {
			t.Errorf("%v of %s arrived, want message 4", b[:n], addr)
		}
		return err
	})
}

// message returns a frame with an ICMPv6 message of 8 bytes to all nodes. Its last byte is the mark.
func message(typ, hops, mark byte) []byte {
	src, dst := netip.MustParseAddr("fe80::1").As16(), netip.MustParseAddr("ff02::1").As16()
	icmp := []byte{typ, 0, 0, 0, 0, 0, 0, mark}
	pseudo := []byte{0, byte(len(icmp)), 0, unix.IPPROTO_ICMPV6} // RFC 8200, section 8.1
	binary.BigEndian.PutUint16(icmp[2:], kerneltest.Checksum(src[:], dst[:], pseudo, icmp))
	frame := []byte{0x33, 0x33, 0, 0, 0, 1, 2, 0, 0, 0, 0, 1, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 8, unix.IPPROTO_ICMPV6, hops}
	return append(append(append(frame, src[:]...), dst[:]...), icmp...)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
