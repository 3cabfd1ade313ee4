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

// Echo requests and replies, RFC 792 and 4443.
const (
	echoRequest4, echoReply4 = 8, 0
	echoRequest6, echoReply6 = 128, 129
)

// Ping sends one echo request from a namespace and waits for the reply. It returns os.ErrDeadlineExceeded after the
// given time. index is that of the link to a link-local address; other addresses do not need it.
func Ping(ctx context.Context, ns *netns.Handle, to netip.Addr, index int, wait time.Duration) error {
	domain, proto, request, reply := unix.AF_INET, unix.IPPROTO_ICMP, byte(echoRequest4), byte(echoReply4)
	var sa unix.Sockaddr = &unix.SockaddrInet4{Addr: [4]byte{}}
	if to.Is4() {
		sa = &unix.SockaddrInet4{Addr: to.As4()}
	} else {
		domain, proto, request, reply = unix.AF_INET6, unix.IPPROTO_ICMPV6, echoRequest6, echoReply6
		sa = &unix.SockaddrInet6{Addr: to.As16(), ZoneId: uint32(index)}
	}
	s, err := openSocket(ns, "ICMP socket", domain, unix.SOCK_RAW, proto, func(fd int) error { return unix.Connect(fd, sa) })
	if err != nil {
		return err
	}
	defer s.Close()
	id := uint16(os.Getpid())
	if _, err := s.file.Write(echo(request, id)); err != nil {
		return fmt.Errorf("ping %s: %w", to, err)
	}
	until := time.Now().Add(wait)
	p := make([]byte, 256)
	for {
		n, _, err := s.Receive(ctx, p, until)
		if err != nil {
			return errors.Join(fmt.Errorf("ping %s: no reply within %v", to, wait), err)
		}
		m := p[:n]
		if to.Is4() && len(m) >= 20 {
			m = m[int(m[0]&15)*4:] // a raw IPv4 socket receives the IP header, too
		}
		if len(m) >= 8 && m[0] == reply && binary.BigEndian.Uint16(m[4:]) == id {
			return nil
		}
	}
}

// echo returns an echo request. The kernel fills in the ICMPv6 checksum.
func echo(typ byte, id uint16) []byte {
	m := []byte{typ, 0, 0, 0, byte(id >> 8), byte(id), 0, 1}
	sum := uint32(0)
	for i := 0; i < len(m); i += 2 {
		sum += uint32(m[i])<<8 | uint32(m[i+1])
	}
	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(m[2:], ^uint16(sum+sum>>16))
	return m
}
