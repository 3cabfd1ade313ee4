package dhcpd

import (
	"encoding/binary"
	"net"
	"net/netip"
	"sync/atomic"
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
	port     uint16                                     // the source port of its answers
	answer   func(q, a *dhcpv4.DHCPv4, toAll bool) bool // completes the answer a to q, or returns false to ignore q
	received atomic.Int32                               // messages
}

// fake starts a server at 10.0.0.1 on a new network.
func fake(t *testing.T, port uint16, answer func(q, a *dhcpv4.DHCPv4, toAll bool) bool) (*dhcptest.Network, *fakeServer) {
	t.Helper()
	n := dhcptest.New(t, "br0", "10.0.0.1/24")
	s := &fakeServer{port: port, answer: answer}
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
	s.received.Add(1)
	a, _ := dhcpv4.NewReplyFromRequest(q, dhcpv4.WithYourIP(net.IPv4(10, 0, 0, 50)), dhcpv4.WithServerIP(net.IPv4(10, 0, 0, 1)),
		dhcpv4.WithOption(dhcpv4.OptServerIdentifier(net.IPv4(10, 0, 0, 1))), dhcpv4.WithNetmask(net.CIDRMask(24, 32)))
	a.UpdateOption(dhcpv4.OptMessageType(dhcpv4.MessageTypeOffer))
	if q.MessageType() == dhcpv4.MessageTypeRequest {
		a.UpdateOption(dhcpv4.OptMessageType(dhcpv4.MessageTypeAck))
	}
	if !s.answer(q, a, toAll) {
		return nil
	}
	f := frame(endpoint{mac, netip.MustParseAddr("10.0.0.1")}, broadcast(), a.ToBytes())
	binary.BigEndian.PutUint16(f[34:], s.port)
	binary.BigEndian.PutUint16(f[36:], clientPort)
	return f
}

func seconds(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }

// TestServerWithAnotherPort gets an address from a server, or a relay, that does not send from port 67.
func TestServerWithAnotherPort(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	n, _ := fake(t, 6767, func(_, _ *dhcpv4.DHCPv4, _ bool) bool { return true })
	d := start(t, Options{ResendTimeout: kerneltest.Slow(5 * time.Second)})
	defer d.Close()
	r := request("one", kerneltest.Netns(t), "")
	n.Join(r.Netns, "eth0")
	if _, err := d.Allocate(t.Context(), r); err != nil {
		t.Error(err)
	}
}

// TestRenewalEndsWithItsPhase checks that an attempt to renew a short lease leaves time to ask other servers: the server
// answers broadcasts only, as a second server that takes over.
func TestRenewalEndsWithItsPhase(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	n, _ := fake(t, serverPort, func(_, a *dhcpv4.DHCPv4, toAll bool) bool {
		a.Options[51], a.Options[58], a.Options[59] = seconds(8), seconds(1), seconds(2)
		return toAll
	})
	d := start(t, Options{})
	defer d.Close()
	r := request("one", kerneltest.Netns(t), "")
	n.Join(r.Netns, "eth0")
	get(t, d, r)
	time.Sleep(9 * time.Second) // longer than the lease
	if err := d.check(r); err != nil {
		t.Error(err)
	}
}

// TestServerRefusesRequests checks the error of an ADD if the server offers an address and then refuses it, and the pauses
// between the attempts.
func TestServerRefusesRequests(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	n, s := fake(t, serverPort, func(q, a *dhcpv4.DHCPv4, _ bool) bool {
		if q.MessageType() == dhcpv4.MessageTypeRequest {
			a.UpdateOption(dhcpv4.OptMessageType(dhcpv4.MessageTypeNak))
			a.UpdateOption(dhcpv4.OptMessage("not here"))
		}
		return true
	})
	d := start(t, Options{ResendTimeout: 3 * time.Second})
	defer d.Close()
	r := request("one", kerneltest.Netns(t), "")
	n.Join(r.Netns, "eth0")
	if _, err := d.Allocate(t.Context(), r); !errorHas(err, `10.0.0.1 refuses 10.0.0.50: "not here"`) {
		t.Error(err)
	}
	if n := s.received.Load(); n > 12 { // 5 attempts of 2 messages; one message may be repeated
		t.Errorf("the server received %d messages", n)
	}
}

// TestSmallMTU gets an address over a link with a small MTU from a server whose answers are as large as the client
// allows.
func TestSmallMTU(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	const more = 10 // bytes of headers of the long option
	n, _ := fake(t, serverPort, func(q, a *dhcpv4.DHCPv4, _ bool) bool {
		most, _ := q.MaxMessageSize()
		for size := 1; len(a.ToBytes())+ipLen+udpLen+more < int(most); size++ {
			a.UpdateOption(dhcpv4.OptGeneric(dhcpv4.OptionVendorSpecificInformation, make([]byte, size)))
		}
		return true
	})
	d := start(t, Options{ResendTimeout: kerneltest.Slow(5 * time.Second)})
	defer d.Close()
	r := request("one", kerneltest.Netns(t), "")
	n.Join(r.Netns, "eth0")
	kerneltest.Run(t, "nsenter", "--net="+r.Netns, "ip", "link", "set", "eth0", "mtu", "1300")
	if _, err := d.Allocate(t.Context(), r); err != nil {
		t.Error(err)
	}
}
