package security

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/hwaddr"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/netns"
)

// send sends frames on a container's eth0, as root in the container can.
func (m *machine) send(container string, frames ...[]byte) {
	m.T.Helper()
	ns, err := netns.Open(m.Netns[container])
	if err != nil {
		m.T.Fatal(err)
	}
	defer ns.Close()
	err = ns.Do(func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		i, err := index(fd, "eth0")
		for _, f := range frames {
			if err == nil {
				err = unix.Sendto(fd, f, 0, &unix.SockaddrLinklayer{Ifindex: i, Halen: 6})
			}
		}
		return err
	})
	if err != nil {
		m.T.Fatal(err)
	}
}

func index(fd int, name string) (int, error) {
	ifr, err := unix.NewIfreq(name)
	if err == nil {
		err = unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, ifr)
	}
	if err != nil {
		return 0, err
	}
	return int(ifr.Uint32()), nil
}

func mac(t testing.TB, s string) []byte {
	hw, err := hwaddr.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return hw
}

// ethernet returns an Ethernet frame with VLAN tags, outermost first.
func ethernet(dst, src []byte, typ uint16, payload []byte, tags ...uint16) []byte {
	f := slices.Concat(dst, src)
	for _, tag := range tags {
		f = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(f, unix.ETH_P_8021Q), tag)
	}
	return append(binary.BigEndian.AppendUint16(f, typ), payload...)
}

// ipv4 returns a packet with a valid checksum and a total length of size bytes.
func ipv4(src, dst string, proto byte, payload []byte, size int) []byte {
	padded := make([]byte, size-20)
	copy(padded, payload)
	return kerneltest.IPv4(netip.MustParseAddr(src), netip.MustParseAddr(dst), proto, padded)
}

// ipv6 returns a packet with a total length of size bytes. Its payload starts with a header of type next.
func ipv6(src, dst string, next byte, payload []byte, size int) []byte {
	b := make([]byte, size)
	b[0], b[6], b[7] = 0x60, next, 255
	binary.BigEndian.PutUint16(b[4:], uint16(size-40))
	copy(b[8:], netip.MustParseAddr(src).AsSlice())
	copy(b[24:], netip.MustParseAddr(dst).AsSlice())
	copy(b[40:], payload)
	return b
}

func udp(from, to uint16) []byte {
	b := binary.BigEndian.AppendUint16(nil, from)
	return append(binary.BigEndian.AppendUint16(b, to), 0, 8, 0, 0)
}

// neighbour returns an ICMPv6 neighbour discovery message of a type, with a target.
func neighbour(typ byte, target string) []byte {
	return append([]byte{typ, 0, 0, 0, 0x20, 0, 0, 0}, netip.MustParseAddr(target).AsSlice()...)
}

// hopByHop prepends a hop-by-hop extension header.
func hopByHop(next byte, payload []byte) []byte {
	return append([]byte{next, 0, 1, 4, 0, 0, 0, 0}, payload...)
}

// arp returns an ARP message, padded to size bytes.
func arp(op uint16, srcMAC []byte, src, dst string, size int) []byte {
	b := []byte{0, 1, 8, 0, 6, 4}
	b = append(binary.BigEndian.AppendUint16(b, op), srcMAC...)
	b = append(b, netip.MustParseAddr(src).AsSlice()...)
	b = append(append(b, make([]byte, 6)...), netip.MustParseAddr(dst).AsSlice()...)
	return append(b, make([]byte, size-len(b))...)
}
