package packet

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netns"
)

// Socket is a datagram socket on one link of a namespace. It waits in the runtime's poller, so thousands of sockets can
// wait at once.
type Socket struct {
	file *os.File
	what string // for errors
}

// OpenFrames opens a packet socket that receives Ethernet frames with IPv4 and UDP for a port. A DHCP client needs it
// before it has an address.
func OpenFrames(ns *netns.Handle, index int, port uint16) (*Socket, error) {
	return openSocket(ns, "packet socket", unix.AF_PACKET, unix.SOCK_RAW, 0, func(fd int) error {
		if err := attachFilter(fd, udpTo(port)); err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: networkOrder(unix.ETH_P_IP), Ifindex: index})
	})
}

// OpenUDP6 opens a UDP socket on a link-local address of a link.
func OpenUDP6(ns *netns.Handle, index int, from netip.AddrPort) (*Socket, error) {
	return openSocket(ns, "UDP socket", unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_UDP, func(fd int) error {
		err := errors.Join(
			unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1),
			unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_IF, index))
		if err != nil {
			return err
		}
		return unix.Bind(fd, sockaddr6(from, index))
	})
}

// OpenICMP6 opens a raw socket for ICMPv6 messages of one type from neighbours: only packets with the hop limit 255,
// which no router forwards.
func OpenICMP6(ns *netns.Handle, index int, typ uint8) (*Socket, error) {
	return openSocket(ns, "ICMPv6 socket", unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6, func(fd int) error {
		var block unix.ICMPv6Filter
		for i := range block.Data {
			block.Data[i] = ^uint32(0)
		}
		block.Data[typ>>5] &^= 1 << (typ & 31)
		err := errors.Join(
			attachFilter(fd, neighbours()),
			unix.SetsockoptICMPv6Filter(fd, unix.IPPROTO_ICMPV6, unix.ICMPV6_FILTER, &block),
			unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, 255),
			unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_IF, index))
		if err != nil {
			return err
		}
		return unix.Bind(fd, sockaddr6(netip.AddrPortFrom(netip.IPv6Unspecified(), 0), index))
	})
}

func openSocket(ns *netns.Handle, what string, domain, typ, proto int, prepare func(fd int) error) (*Socket, error) {
	fd := -1
	err := ns.Do(func() (err error) {
		fd, err = unix.Socket(domain, typ|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, proto)
		return err
	})
	if err == nil {
		err = prepare(fd)
	}
	if err != nil {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
		return nil, fmt.Errorf("open %s in %s: %w", what, ns.Path(), err)
	}
	return &Socket{os.NewFile(uintptr(fd), what), what}, nil
}

// Close closes the socket and ends a Receive that waits.
func (s *Socket) Close() { _ = s.file.Close() }

// SendFrame sends a whole Ethernet frame.
func (s *Socket) SendFrame(frame []byte) error {
	_, err := s.file.Write(frame)
	return err
}

// SendTo6 sends a datagram to an address on the link with an index.
func (s *Socket) SendTo6(p []byte, to netip.AddrPort, index int) error {
	c, err := s.file.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	err = c.Write(func(fd uintptr) bool {
		sent = unix.Sendto(int(fd), p, 0, sockaddr6(to, index))
		return sent != unix.EAGAIN
	})
	if err = errors.Join(err, sent); err != nil {
		return fmt.Errorf("send %d bytes to %s: %w", len(p), to, err)
	}
	return nil
}

// Receive waits for a datagram. At the time until it returns os.ErrDeadlineExceeded; when the context ends, the
// context's cause. from is zero for a frame.
func (s *Socket) Receive(ctx context.Context, p []byte, until time.Time) (n int, from netip.Addr, err error) {
	if err := s.file.SetReadDeadline(until); err != nil {
		return 0, from, err
	}
	stop := context.AfterFunc(ctx, func() { _ = s.file.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	c, err := s.file.SyscallConn()
	if err != nil {
		return 0, from, err
	}
	var sa unix.Sockaddr
	var got error
	err = c.Read(func(fd uintptr) bool {
		n, sa, got = unix.Recvfrom(int(fd), p, 0)
		return got != unix.EAGAIN
	})
	if ctx.Err() != nil {
		return 0, from, context.Cause(ctx)
	}
	if err = errors.Join(err, got); err != nil {
		return 0, from, fmt.Errorf("receive from %s: %w", s.what, err)
	}
	if in6, ok := sa.(*unix.SockaddrInet6); ok {
		from = netip.AddrFrom16(in6.Addr)
	}
	return n, from, nil
}

func sockaddr6(a netip.AddrPort, index int) *unix.SockaddrInet6 {
	return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port()), ZoneId: uint32(index)}
}

func networkOrder(v uint16) uint16 {
	return binary.NativeEndian.Uint16([]byte{byte(v >> 8), byte(v)})
}

func attachFilter(fd int, prog []unix.SockFilter) error {
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]})
}

const acceptAll = 1 << 18 // bytes

// udpTo returns a BPF program that accepts frames with the first fragment of a UDP packet over IPv4 to a port.
func udpTo(port uint16) []unix.SockFilter {
	return []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: 23}, // protocol
		{Code: unix.BPF_JMP | unix.BPF_JEQ, K: unix.IPPROTO_UDP, Jf: 6},
		{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: 20}, // fragment offset
		{Code: unix.BPF_JMP | unix.BPF_JSET, K: 0x1fff, Jt: 4},
		{Code: unix.BPF_LDX | unix.BPF_B | unix.BPF_MSH, K: 14}, // the header's length
		{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_IND, K: 16},  // destination port
		{Code: unix.BPF_JMP | unix.BPF_JEQ, K: uint32(port), Jf: 1},
		{Code: unix.BPF_RET, K: acceptAll},
		{Code: unix.BPF_RET, K: 0},
	}
}

// neighbours returns a BPF program that accepts IPv6 packets with the hop limit 255. Source: RFC 4861, section 6.1.2.
func neighbours() []unix.SockFilter {
	return []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: 0xfff00000 + 7}, // SKF_NET_OFF: the hop limit
		{Code: unix.BPF_JMP | unix.BPF_JEQ, K: 255, Jf: 1},
		{Code: unix.BPF_RET, K: acceptAll},
		{Code: unix.BPF_RET, K: 0},
	}
}
