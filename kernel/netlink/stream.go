package netlink

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Stream receives the messages that the kernel sends without a request: the events of multicast groups, or the packets of
// a netfilter log group. It waits in the runtime's poller.
type Stream struct {
	file *os.File
	buf  []byte
}

// Message is a message of a Stream.
type Message struct {
	Type uint16
	Port uint32 // port ID of the socket whose request caused an event; 0: unknown
	Body []byte // without the header; its capacity is its length
}

// ErrMissed reports that the receive buffer was full, so that messages are missing. The stream goes on.
var ErrMissed = errors.New("netlink messages are missing") // a constant; nothing assigns it

// Stream turns the connection into a stream, and adds it to multicast groups. size is that of the receive buffer in bytes:
// a burst that does not fit is lost. The connection must not be used or closed any more.
func (c *Conn) Stream(size int, groups ...int) (*Stream, error) {
	_ = unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, size) // without it, more is lost
	err := unix.SetNonblock(c.fd, true)
	for _, g := range groups {
		err = errors.Join(err, unix.SetsockoptInt(c.fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, g))
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("listen to netlink: %w", err)
	}
	s := &Stream{os.NewFile(uintptr(c.fd), "netlink"), make([]byte, 64<<10)}
	c.fd = -1 // the file closes it
	return s, nil
}

// Close closes the stream and ends Receive.
func (s *Stream) Close() { _ = s.file.Close() }

// Receive waits for messages and returns those of one datagram, which may be none. The error is ErrMissed if some are
// missing, and os.ErrClosed after Close.
func (s *Stream) Receive() ([]Message, error) {
	c, err := s.file.SyscallConn()
	if err != nil {
		return nil, err
	}
	var from unix.Sockaddr
	n, got := 0, error(nil)
	err = c.Read(func(fd uintptr) bool {
		n, from, got = unix.Recvfrom(int(fd), s.buf, 0)
		return got != unix.EAGAIN
	})
	switch {
	case errors.Is(got, unix.ENOBUFS):
		return nil, ErrMissed
	case errors.Is(got, unix.EINTR):
		return nil, nil
	}
	if err = errors.Join(err, got); err != nil {
		return nil, fmt.Errorf("receive from netlink: %w", err)
	}
	if !FromKernel(from) {
		return nil, nil
	}
	return parseMessages(append([]byte(nil), s.buf[:n]...)), nil
}

// parseMessages splits a datagram. It stops at a message whose size is wrong.
func parseMessages(p []byte) (out []Message) {
	for len(p) >= unix.NLMSG_HDRLEN {
		size := int(binary.NativeEndian.Uint32(p))
		if size < unix.NLMSG_HDRLEN || size > len(p) {
			break
		}
		out = append(out, Message{binary.NativeEndian.Uint16(p[4:]), binary.NativeEndian.Uint32(p[12:]), p[unix.NLMSG_HDRLEN:size:size]})
		p = p[min((size+3)&^3, len(p)):]
	}
	return out
}
