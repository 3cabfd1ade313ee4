package dhcpd

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/fairlead/fairlead/internal/dhcptest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/netns"
	"github.com/fairlead/fairlead/kernel/packet"
)

// fakeServer answers DHCP messages as a test decides, also as no real server would.
type fakeServer struct {
	port uint16 // the source port of its answers

	mu     sync.Mutex
	answer func(q, a *dhcpv4.DHCPv4) bool // completes the answer a to q, or returns false to ignore q
	got    []message
}

// message is a message that a server received.
type message struct {
	typ       dhcpv4.MessageType
	broadcast bool
}

// fake starts a server at 10.0.0.1 on a new network.
func fake(t *testing.T, answer func(q, a *dhcpv4.DHCPv4) bool) (*dhcptest.Network, *fakeServer) {
	t.Helper()
	n := dhcptest.New(t, "br0", "10.0.0.1/24")
	s := &fakeServer{port: serverPort, answer: answer}
	ns, err := netns.Open(n.Servers)
	if err != nil {
		t.Fatal(err)
	}
	l, err := openLink(n.Servers, netns.ID{}, "eth0")
	if err != nil {
		t.Fatal(err)
	}
	socket, err := packet.OpenFrames(ns, l.index, serverPort)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); s.serve(t, socket, l.mac) }()
	t.Cleanup(func() { socket.Close(); <-done; l.close(); ns.Close() })
	return n, s
}

func (s *fakeServer) serve(t *testing.T, socket *packet.Socket, mac net.HardwareAddr) {
	b := make([]byte, 4096)
	for {
		n, _, err := socket.Receive(t.Context(), b, time.Time{})
		if err != nil {
			return
		}
		q, err := dhcpv4.FromBytes(b[etherLen+ipLen+udpLen : n])
		if err != nil {
			continue
		}
		if f := s.reply(q, b[0] == 0xff, mac); f != nil {
			_ = socket.SendFrame(f)
		}
	}
}

// reply returns the frame with the answer to a message, or nil.
func (s *fakeServer) reply(q *dhcpv4.DHCPv4, toAll bool, mac net.HardwareAddr) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got = append(s.got, message{q.MessageType(), toAll})
	a, _ := dhcpv4.NewReplyFromRequest(q, dhcpv4.WithYourIP(net.IPv4(10, 0, 0, 50)), dhcpv4.WithServerIP(net.IPv4(10, 0, 0, 1)),
		dhcpv4.WithOption(dhcpv4.OptServerIdentifier(net.IPv4(10, 0, 0, 1))), dhcpv4.WithNetmask(net.CIDRMask(24, 32)))
	a.UpdateOption(dhcpv4.OptMessageType(dhcpv4.MessageTypeOffer))
	if q.MessageType() == dhcpv4.MessageTypeRequest {
		a.UpdateOption(dhcpv4.OptMessageType(dhcpv4.MessageTypeAck))
	}
	if !s.answer(q, a) {
		return nil
	}
	f := frame(endpoint{mac, netip.MustParseAddr("10.0.0.1")}, broadcast(), a.ToBytes())
	binary.BigEndian.PutUint16(f[34:], s.port)
	binary.BigEndian.PutUint16(f[36:], clientPort)
	return f
}

// received returns the messages that the server received.
func (s *fakeServer) received() []message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.got)
}

func seconds(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }

// TestServerWithAnotherPort gets an address from a server, or a relay, that does not send from port 67.
func TestServerWithAnotherPort(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	n, s := fake(t, func(_, _ *dhcpv4.DHCPv4) bool { return true })
	s.port = 6767
	d := start(t, Options{ResendTimeout: kerneltest.Slow(5 * time.Second)})
	defer d.Close()
	r := request("one", kerneltest.Netns(t), "")
	n.Join(r.Netns, "eth0")
	if _, err := d.Allocate(t.Context(), r); err != nil {
		t.Error(err)
	}
}

