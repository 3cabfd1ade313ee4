package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// conn is a netlink socket. It stays in the namespace it was opened in.
type conn struct {
	fd  int
	seq uint32
	rx  []byte
}

// request is one message; the engine numbers it.
type request struct {
	typ, flags uint16
	body       []byte
}

// response is what the kernel answered to one request.
type response struct {
	err  error    // the acknowledgement's, or nil
	msgs [][]byte // payloads of the messages before it (dumps, echoes)
}

// Error is a refusal by the kernel, with its own words where it had some
// (extended acknowledgement, kernel 4.12).
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

// Is makes absence, in whatever word the kernel says it, os.ErrNotExist.
func (e *Error) Is(target error) bool {
	return target == os.ErrNotExist && (e.Errno == unix.ENODEV || e.Errno == unix.ESRCH || e.Errno == unix.ENXIO)
}

const (
	rxSize       = 32 << 10        // the largest part of a list that the kernel sends at once
	dumpRetries  = 8               // at least
	dumpPatience = 2 * time.Second // and for as long
)

// dial opens a socket in the calling thread's namespace; rx is its buffer,
// which sockets that are not read at once may share.
func dial(family int, rx []byte) (*conn, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, family)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	// Older kernels lack one or the other; all that is lost is detail.
	_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_EXT_ACK, 1)
	_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1)
	_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_GET_STRICT_CHK, 1)
	if family == unix.NETLINK_NETFILTER {
		// A transaction's acknowledgements arrive all at once.
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 4<<20)
	}
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 30})
	return &conn{fd: fd, rx: rx}, nil
}

// port is the number by which the kernel knows the socket; 0 before its first use.
func (c *conn) port() uint32 {
	if sa, err := unix.Getsockname(c.fd); err == nil {
		if nl, ok := sa.(*unix.SockaddrNetlink); ok {
			return nl.Pid
		}
	}
	return 0
}

func (c *conn) close() {
	if c != nil {
		_ = unix.Close(c.fd)
	}
}

// do sends all requests in one write and returns the answer to each. The
// kernel handles them in order and goes on after a refusal.
func (c *conn) do(reqs []request) ([]response, error) {
	var out buf
	first := c.seq + 1
	for _, r := range reqs {
		c.seq++
		appendMessage(&out, r.typ, r.flags|unix.NLM_F_REQUEST, c.seq, r.body)
	}
	if err := c.send(out); err != nil {
		return nil, err
	}
	resp := make([]response, len(reqs))
	for pending := len(reqs); pending > 0; {
		n, err := c.read(first, resp)
		if err != nil {
			return nil, err
		}
		pending -= n
	}
	return resp, nil
}

// dump asks for a list. A dump that a concurrent change interrupted is asked
// again, a bounded number of times; then what was listed, each part of it true
// when it was, some more than once, comes with the error EAGAIN.
func (c *conn) dump(r request) ([][]byte, error) {
	r.flags |= unix.NLM_F_DUMP
	return retryDump(func() ([][]byte, error) {
		resp, err := c.do([]request{r})
		if err != nil {
			return nil, err
		}
		return resp[0].msgs, resp[0].err
	})
}

func retryDump(ask func() ([][]byte, error)) ([][]byte, error) {
	tries := 0
	var seen [][]byte
	for end := time.Now().Add(dumpPatience); tries < dumpRetries || time.Now().Before(end); tries++ {
		msgs, err := ask()
		if !errors.Is(err, errInterrupted) {
			return msgs, err
		}
		seen = append(seen, msgs...)
	}
	return seen, fmt.Errorf("list interrupted by changes %d times in a row: %w", tries, unix.EAGAIN)
}

var errInterrupted = errors.New("dump interrupted")

func appendMessage(b *buf, typ, flags uint16, seq uint32, body []byte) {
	*b = binary.NativeEndian.AppendUint32(*b, uint32(unix.NLMSG_HDRLEN+len(body)))
	*b = binary.NativeEndian.AppendUint16(*b, typ)
	*b = binary.NativeEndian.AppendUint16(*b, flags)
	*b = binary.NativeEndian.AppendUint32(*b, seq)
	*b = append(*b, 0, 0, 0, 0)
	*b = append(*b, body...)
	b.pad()
}

func (c *conn) send(p []byte) error {
	for {
		err := unix.Sendto(c.fd, p, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		if err == nil {
			return nil
		}
		if err != unix.EINTR {
			return fmt.Errorf("send %d bytes over netlink: %w", len(p), err)
		}
	}
}

// read takes one datagram and files its messages; it returns how many
// requests it completed.
func (c *conn) read(first uint32, resp []response) (done int, err error) {
	n, _, err := unix.Recvfrom(c.fd, c.rx, 0)
	if err == unix.EINTR {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("receive over netlink: %w", err)
	}
	return c.parse(c.rx[:n], first, resp)
}

func (c *conn) parse(p []byte, first uint32, resp []response) (done int, err error) {
	for len(p) >= unix.NLMSG_HDRLEN {
		size := int(binary.NativeEndian.Uint32(p))
		if size < unix.NLMSG_HDRLEN || size > len(p) {
			return done, fmt.Errorf("receive over netlink: message of %d bytes in %d", size, len(p))
		}
		typ, flags := binary.NativeEndian.Uint16(p[4:]), binary.NativeEndian.Uint16(p[6:])
		i := int(binary.NativeEndian.Uint32(p[8:]) - first)
		if i >= 0 && i < len(resp) && resp[i].file(typ, flags, p[unix.NLMSG_HDRLEN:size]) {
			done++
		}
		p = p[min((size+3)&^3, len(p)):]
	}
	return done, nil
}

// file stores one message of the answer and tells whether it was the last.
func (r *response) file(typ, flags uint16, body []byte) bool {
	if flags&unix.NLM_F_DUMP_INTR != 0 {
		r.err = errInterrupted
	}
	switch typ {
	case unix.NLMSG_ERROR, unix.NLMSG_DONE:
		if err := ackError(typ, flags, body); err != nil {
			r.err = err
		}
		return true
	case unix.NLMSG_NOOP:
		return false
	}
	r.msgs = append(r.msgs, append([]byte(nil), body...))
	return false
}

func ackError(typ, flags uint16, body []byte) error {
	code := int32(num32(body))
	if code == 0 {
		return nil
	}
	e := &Error{Errno: unix.Errno(-code)}
	tlvs := body[min(4, len(body)):]
	if typ == unix.NLMSG_ERROR {
		// struct nlmsgerr: the error, then the request's header, then, unless
		// capped, its payload.
		size := unix.NLMSG_HDRLEN
		if flags&unix.NLM_F_CAPPED == 0 {
			size = (int(min(num32(tlvs), uint32(len(tlvs)))) + 3) &^ 3
		}
		tlvs = tlvs[min(size, len(tlvs)):]
	}
	if flags&unix.NLM_F_ACK_TLVS != 0 {
		e.Msg = text(attr(tlvs, unix.NLMSGERR_ATTR_MSG))
	}
	return e
}
