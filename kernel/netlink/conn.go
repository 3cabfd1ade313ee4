package netlink

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Conn is a netlink socket. It belongs to the namespace that it was opened in. It is not safe for concurrent use.
type Conn struct {
	fd  int
	seq uint32
	rx  []byte

	sendLimit    int // bytes of one write, if raised
	receiveLimit int // requests of one write whose acknowledgements fit, if raised
}

// Request is one message. The connection adds the sequence number. With the flags NLM_F_ACK or NLM_F_DUMP, several
// messages may answer it, and otherwise the first one does.
type Request struct {
	Type, Flags uint16
	Body        []byte
}

// Response is the kernel's reply to one request.
type Response struct {
	Err      error    // of the acknowledgement, or nil
	Messages [][]byte // payloads of the messages before the acknowledgement (dumps, echoes)

	single   bool // one message answers the request
	answered bool
}

// Error is an error of the kernel, with its message if it sent one (extended acknowledgement, kernel 4.12).
type Error struct {
	Errno unix.Errno
	Msg   string
}

func (e *Error) Error() string {
	if e.Msg == "" {
		return e.Errno.Error()
	}
	return e.Errno.Error() + ": " + e.Msg
}

func (e *Error) Unwrap() error { return e.Errno }

// Is makes every error that means absence match os.ErrNotExist.
func (e *Error) Is(target error) bool {
	return target == os.ErrNotExist && (e.Errno == unix.ENODEV || e.Errno == unix.ESRCH || e.Errno == unix.ENXIO)
}

// SocketError is a failure of the socket. It matches no errno, because it says nothing about the object of a request:
// EBUSY of a socket does not mean that a link or a chain is in use.
type SocketError struct {
	Op  string
	Err error
}

func (e *SocketError) Error() string { return e.Op + ": " + e.Err.Error() }

const (
	BufferSize   = 32 << 10        // the largest part of a dump that the kernel sends at once
	dumpRetries  = 8               // repeat an interrupted dump at least so often
	dumpPatience = 2 * time.Second // and for so long
)

// Dial opens a socket in the namespace of the calling thread. rx is the receive buffer, of BufferSize bytes. Several
// connections may share one buffer if they are used one after the other.
func Dial(family int, rx []byte) (*Conn, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, family)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	// Older kernels lack one of these options. Without it, errors have less detail.
	_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_EXT_ACK, 1)
	_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1)
	_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_GET_STRICT_CHK, 1)
	if family == unix.NETLINK_NETFILTER {
		// The acknowledgements of a transaction arrive all at once.
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, largeReceiveBuffer)
	}
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 30})
	// A connected socket receives from the kernel only. A process in the namespace could otherwise fill its buffer.
	if err := unix.Connect(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("connect a netlink socket to the kernel: %w", err)
	}
	return &Conn{fd: fd, rx: rx, seq: rand.Uint32()}, nil // a sender in the namespace cannot guess it
}

// PortID returns the number by which the kernel knows the socket. It is 0 before the first request.
func (c *Conn) PortID() uint32 {
	if sa, err := unix.Getsockname(c.fd); err == nil {
		if nl, ok := sa.(*unix.SockaddrNetlink); ok {
			return nl.Pid
		}
	}
	return 0
}

// FD returns the file descriptor.
func (c *Conn) FD() int { return c.fd }

// Close closes the socket. Closing a nil connection does nothing, and neither does closing one again: by then
// another file may have its file descriptor.
func (c *Conn) Close() {
	if c == nil || c.fd < 0 {
		return
	}
	_ = unix.Close(c.fd)
	c.fd = -1
}

// Do sends all requests in one write and returns the response to each. The kernel handles them in order and continues
// after an error.
func (c *Conn) Do(reqs []Request) ([]Response, error) {
	var out Buffer
	first := c.seq + 1
	for _, r := range reqs {
		c.seq++
		appendMessage(&out, r.Type, r.Flags|unix.NLM_F_REQUEST, c.seq, r.Body)
	}
	c.raiseSendLimit(len(out))
	c.raiseReceiveLimit(len(reqs))
	if err := c.send(out); err != nil {
		return nil, err
	}
	resp := make([]Response, len(reqs))
	for i, r := range reqs {
		resp[i].single = r.Flags&(unix.NLM_F_ACK|unix.NLM_F_DUMP) == 0
	}
	for pending := len(reqs); pending > 0; {
		n, err := c.read(first, resp)
		if err != nil {
			return nil, err
		}
		pending -= n
	}
	return resp, nil
}

// Dump sends a request for a list and returns the messages. It repeats a dump that a concurrent change interrupted, for
// a bounded time. Then it returns EAGAIN with everything it received: each message was true at some moment, and some
// messages repeat.
func (c *Conn) Dump(r Request) ([][]byte, error) {
	return c.DumpComplete(r, func([][]byte) bool { return true })
}

// DumpComplete is Dump for a list that may lack something although the kernel reports no change. complete recognises
// that; the dump is then repeated as if a change had interrupted it.
func (c *Conn) DumpComplete(r Request, complete func([][]byte) bool) ([][]byte, error) {
	r.Flags |= unix.NLM_F_DUMP
	return retryDump(func() ([][]byte, error) {
		resp, err := c.Do([]Request{r})
		if err != nil {
			return nil, err
		}
		if resp[0].Err == nil && !complete(resp[0].Messages) {
			resp[0].Err = errDumpInterrupted
		}
		return resp[0].Messages, resp[0].Err
	})
}

func retryDump(ask func() ([][]byte, error)) ([][]byte, error) {
	tries := 0
	var seen [][]byte
	for end := time.Now().Add(dumpPatience); tries < dumpRetries || time.Now().Before(end); tries++ {
		msgs, err := ask()
		if !errors.Is(err, errDumpInterrupted) {
			return msgs, err
		}
		seen = append(seen, msgs...)
	}
	return seen, fmt.Errorf("list interrupted by changes %d times in a row: %w", tries, unix.EAGAIN)
}

var errDumpInterrupted = errors.New("dump interrupted")

func appendMessage(b *Buffer, typ, flags uint16, seq uint32, body []byte) {
	*b = binary.NativeEndian.AppendUint32(*b, uint32(unix.NLMSG_HDRLEN+len(body)))
	*b = binary.NativeEndian.AppendUint16(*b, typ)
	*b = binary.NativeEndian.AppendUint16(*b, flags)
	*b = binary.NativeEndian.AppendUint32(*b, seq)
	*b = append(*b, 0, 0, 0, 0)
	*b = append(*b, body...)
	b.pad()
}

func (c *Conn) send(p []byte) error {
	for {
		err := unix.Sendto(c.fd, p, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		if err == nil {
			return nil
		}
		if err != unix.EINTR {
			return &SocketError{fmt.Sprintf("send %d bytes over netlink", len(p)), err}
		}
	}
}

// FromKernel reports whether the kernel sent a datagram: its port is 0. A process with CAP_NET_ADMIN in the namespace can
// send to any socket there.
func FromKernel(sender unix.Sockaddr) bool {
	a, ok := sender.(*unix.SockaddrNetlink)
	return ok && a.Pid == 0
}

// read receives one datagram and adds its messages to the responses. It returns the number of requests that are now
// answered.
func (c *Conn) read(first uint32, resp []Response) (done int, err error) {
	n, from, err := unix.Recvfrom(c.fd, c.rx, 0)
	if err == unix.EINTR {
		return 0, nil
	}
	if err != nil {
		return 0, &SocketError{"receive over netlink", err}
	}
	if !FromKernel(from) {
		return 0, nil
	}
	return parse(bytes.Clone(c.rx[:n]), first, resp)
}

// parse adds the messages of one datagram to the responses, which keep p.
func parse(p []byte, first uint32, resp []Response) (done int, err error) {
	for len(p) >= unix.NLMSG_HDRLEN {
		size := int(binary.NativeEndian.Uint32(p))
		if size < unix.NLMSG_HDRLEN || size > len(p) {
			return done, fmt.Errorf("receive over netlink: message of %d bytes in %d", size, len(p))
		}
		typ, flags := binary.NativeEndian.Uint16(p[4:]), binary.NativeEndian.Uint16(p[6:])
		i := int(binary.NativeEndian.Uint32(p[8:]) - first)
		if i >= 0 && i < len(resp) && resp[i].add(typ, flags, p[unix.NLMSG_HDRLEN:size]) {
			resp[i].answered = true
			done++
		}
		p = p[min((size+3)&^3, len(p)):]
	}
	return done, nil
}

// add stores one message of the reply and reports whether it was the last.
func (r *Response) add(typ, flags uint16, body []byte) bool {
	if flags&unix.NLM_F_DUMP_INTR != 0 {
		r.Err = errDumpInterrupted
	}
	switch typ {
	case unix.NLMSG_ERROR, unix.NLMSG_DONE:
		if err := ackError(typ, flags, body); err != nil {
			r.Err = err
		}
		return true
	case unix.NLMSG_NOOP:
		return false
	}
	r.Messages = append(r.Messages, body)
	return r.single
}

func ackError(typ, flags uint16, body []byte) error {
	code := int32(Uint32(body))
	if code == 0 {
		return nil
	}
	e := &Error{Errno: unix.Errno(-code)}
	tlvs := body[min(4, len(body)):]
	if typ == unix.NLMSG_ERROR {
		// struct nlmsgerr: the error, then the header of the request, then its payload unless capped.
		size := unix.NLMSG_HDRLEN
		if flags&unix.NLM_F_CAPPED == 0 {
			size = (int(min(Uint32(tlvs), uint32(len(tlvs)))) + 3) &^ 3
		}
		tlvs = tlvs[min(size, len(tlvs)):]
	}
	if flags&unix.NLM_F_ACK_TLVS != 0 {
		e.Msg = Text(Attr(tlvs, unix.NLMSGERR_ATTR_MSG))
	}
	return e
}

// DumpUntil sends a request for a list and passes the messages of each datagram to enough until that returns true. It
// leaves the rest unread, so the connection can only be closed afterwards.
func (c *Conn) DumpUntil(r Request, enough func([][]byte) bool) error {
	var out Buffer
	c.seq++
	appendMessage(&out, r.Type, r.Flags|unix.NLM_F_REQUEST|unix.NLM_F_DUMP, c.seq, r.Body)
	if err := c.send(out); err != nil {
		return err
	}
	resp := make([]Response, 1)
	for done := 0; done == 0; {
		var err error
		if done, err = c.read(c.seq, resp); err != nil {
			return err
		}
		if enough(resp[0].Messages) {
			return nil
		}
		resp[0].Messages = nil
	}
	if errors.Is(resp[0].Err, errDumpInterrupted) {
		return nil
	}
	return resp[0].Err
}

// IsAbsent reports whether an error means that the object does not exist.
func IsAbsent(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.EADDRNOTAVAIL)
}
