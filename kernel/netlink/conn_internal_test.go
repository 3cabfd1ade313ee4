package netlink

import (
	"encoding/binary"
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func ack(errno unix.Errno, msg string) []byte {
	b := Buffer(binary.NativeEndian.AppendUint32(nil, uint32(-int32(errno))))
	b = append(b, make([]byte, unix.NLMSG_HDRLEN)...)
	if msg != "" {
		b.String(unix.NLMSGERR_ATTR_MSG, msg)
	}
	return b
}

func TestAckErrors(t *testing.T) {
	t.Parallel()
	const flags = unix.NLM_F_CAPPED | unix.NLM_F_ACK_TLVS
	err := ackError(unix.NLMSG_ERROR, flags, ack(unix.ENETUNREACH, "Nexthop has invalid gateway"))
	if !errors.Is(err, unix.ENETUNREACH) || err.Error() != "network is unreachable: Nexthop has invalid gateway" {
		t.Errorf("got %v", err)
	}
	if err := ackError(unix.NLMSG_ERROR, flags, ack(0, "")); err != nil {
		t.Errorf("success is %v", err)
	}
	for _, e := range []unix.Errno{unix.ENODEV, unix.ESRCH, unix.ENOENT, unix.ENXIO} {
		if err := ackError(unix.NLMSG_ERROR, 0, ack(e, "")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%v does not match os.ErrNotExist", err)
		}
	}
}

// TestInterruptedList checks that an interrupted dump is recognised.
func TestInterruptedList(t *testing.T) {
	t.Parallel()
	var r Response
	if r.add(unix.RTM_NEWLINK, unix.NLM_F_DUMP_INTR|unix.NLM_F_MULTI, []byte("one")) {
		t.Error("the first part is the last")
	}
	if !r.add(unix.NLMSG_DONE, unix.NLM_F_MULTI, make([]byte, 4)) || !errors.Is(r.Err, errDumpInterrupted) {
		t.Errorf("done with %v", r.Err)
	}
}

// TestInterruptedForever checks that a dump that is interrupted again and again ends with an error.
func TestInterruptedForever(t *testing.T) {
	t.Parallel()
	asked := 0
	seen, err := retryDump(func() ([][]byte, error) {
		asked++
		time.Sleep(10 * time.Millisecond)
		return [][]byte{{1}}, errDumpInterrupted
	})
	if len(seen) != asked {
		t.Errorf("asked %d times, %d parts were seen", asked, len(seen))
	}
	if asked < dumpRetries || asked > int(dumpPatience/(10*time.Millisecond))+1 || !errors.Is(err, unix.EAGAIN) {
		t.Errorf("asked %d times, then %v", asked, err)
	}
	asked = 0
	got, err := retryDump(func() ([][]byte, error) {
		if asked++; asked < 3 {
			return nil, errDumpInterrupted
		}
		return [][]byte{{1}}, nil
	})
	if asked != 3 || err != nil || len(got) != 1 {
		t.Errorf("asked %d times, got %v, %v", asked, got, err)
	}
}

// TestForgedReply sends a reply to a connection before the kernel does.
func TestForgedReply(t *testing.T) {
	t.Parallel()
	c, err := Dial(unix.NETLINK_ROUTE, make([]byte, BufferSize))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ask := []Request{{Type: unix.RTM_GETLINK, Flags: unix.NLM_F_ACK, Body: LinkMessage(1<<30, 0, 0)}}
	if _, err := c.Do(ask); err != nil { // binds the socket to a port
		t.Fatal(err)
	}
	forger, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(forger)
	var forged Buffer
	appendMessage(&forged, unix.NLMSG_ERROR, unix.NLM_F_CAPPED, c.seq+1, ack(0, ""))
	// The kernel does not even queue it, so that nobody can fill the socket's buffer.
	if err := unix.Sendto(forger, forged, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Pid: c.PortID()}); err != unix.ECONNREFUSED {
		t.Errorf("a forged reply: %v", err)
	}
	resp, err := c.Do(ask)
	if err != nil || !errors.Is(resp[0].Err, unix.ENODEV) {
		t.Errorf("a link that does not exist: %v, %v", resp[0].Err, err)
	}
}

func FuzzReplies(f *testing.F) {
	f.Add([]byte(ack(unix.EINVAL, "why")))
	f.Add(make([]byte, 64))
	f.Fuzz(func(t *testing.T, p []byte) {
		_ = ackError(unix.NLMSG_ERROR, unix.NLM_F_ACK_TLVS, p)
		_, _ = parse(p, 1, make([]Response, 2))
	})
}

// TestSocketErrors checks that a failure of the socket is not taken for the kernel's answer about an object.
func TestSocketErrors(t *testing.T) {
	t.Parallel()
	c, err := Dial(unix.NETLINK_ROUTE, make([]byte, BufferSize))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 1000}); err != nil {
		t.Fatal(err)
	}
	_, receive := c.read(0, nil)
	tooLong := c.send(make([]byte, 64<<20))
	for errno, err := range map[unix.Errno]error{unix.EAGAIN: receive, unix.EMSGSIZE: tooLong} {
		socket, ok := errors.AsType[*SocketError](err)
		if !ok || socket.Err != errno || errors.Is(err, errno) {
			t.Errorf("%v: got %v", errno, err)
		}
	}
}
