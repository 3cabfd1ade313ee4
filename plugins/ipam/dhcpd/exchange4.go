package dhcpd

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/fairlead/fairlead/kernel/packet"
	addr "github.com/fairlead/fairlead/plugins/ipam"
)

// exchange4 is a conversation with servers over one socket.
type exchange4 struct {
	*v4
	l       *link
	socket  *packet.Socket
	xid     dhcpv4.TransactionID
	started time.Time

	unusable error // why the last offer was not accepted
}

func (p *v4) begin(l *link) (*exchange4, error) {
	s, err := packet.OpenFrames(l.ns, l.index, clientPort)
	if err != nil {
		return nil, err
	}
	xid, err := dhcpv4.GenerateTransactionID()
	if err != nil {
		s.Close()
		return nil, err
	}
	return &exchange4{v4: p, l: l, socket: s, xid: xid, started: time.Now()}, nil
}

// message starts a message of a type with the fields that all messages have. It includes the client's address while
// that address may be used.
func (x *exchange4) message(typ dhcpv4.MessageType, own netip.Addr, options ...dhcpv4.Option) *dhcpv4.DHCPv4 {
	m := &dhcpv4.DHCPv4{
		OpCode: dhcpv4.OpcodeBootRequest, HWType: 1, TransactionID: x.xid, ClientHWAddr: x.l.mac, Options: dhcpv4.Options{},
		ClientIPAddr: net.IPv4zero, YourIPAddr: net.IPv4zero, ServerIPAddr: net.IPv4zero, GatewayIPAddr: net.IPv4zero,
	}
	if own.IsValid() {
		m.ClientIPAddr = own.AsSlice()
	}
	m.Options[uint8(dhcpv4.OptionDHCPMessageType.Code())] = []byte{byte(typ)}
	m.Options[addr.OptClientID] = clientID(x.id)
	if typ != dhcpv4.MessageTypeRelease {
		m.Options[uint8(dhcpv4.OptionMaximumDHCPMessageSize.Code())] = binary.BigEndian.AppendUint16(nil, x.l.maxMessage())
		m.Options[uint8(dhcpv4.OptionParameterRequestList.Code())] = x.requestedOptions()
		if x.o.Broadcast && !own.IsValid() {
			m.SetBroadcast()
		}
	}
	for _, o := range x.conf.Provide {
		if typ != dhcpv4.MessageTypeRelease || o.Code == addr.OptClientID {
			m.Options[o.Code] = o.Value
		}
	}
	for _, o := range options {
		m.UpdateOption(o)
	}
	return m
}

// requestedOptions returns the options to request. If none are configured, they are the reference daemon's default
// options, because servers differ in how they treat an empty list.
func (x *exchange4) requestedOptions() []byte {
	if len(x.conf.Request) > 0 {
		return x.conf.Request
	}
	return []byte{addr.OptSubnetMask, addr.OptRouters, addr.OptDomainName, addr.OptNameServers}
}

// clientID returns the same client ID as the reference daemon, so a server gives both the same address. It is a type of
// zero and the name, limited to an option's 255 bytes.
func clientID(name string) []byte {
	return append([]byte{0}, name[:min(len(name), 254)]...)
}

func (x *exchange4) discover() *dhcpv4.DHCPv4 {
	m := x.message(dhcpv4.MessageTypeDiscover, netip.Addr{})
	if had := x.address(); had.IsValid() {
		m.UpdateOption(dhcpv4.OptRequestedIPAddress(had.AsSlice()))
	}
	return m
}

// offered reports whether to accept an offer. After an address was lost, only an offer of that address is accepted.
func (x *exchange4) offered(m *dhcpv4.DHCPv4) bool {
	a, had := yourAddr(m), x.address()
	if m.MessageType() != dhcpv4.MessageTypeOffer || !a.IsValid() || !serverOf(m).IsValid() {
		return false
	}
	if had.IsValid() {
		return a == had
	}
	x.unusable = x.refuse4(m)
	return x.unusable == nil
}

// request accepts an offer.
func (x *exchange4) request(ctx context.Context, offer *dhcpv4.DHCPv4) error {
	m := x.message(dhcpv4.MessageTypeRequest, netip.Addr{},
		dhcpv4.OptRequestedIPAddress(offer.YourIPAddr), dhcpv4.OptServerIdentifier(offer.ServerIdentifier()))
	return x.confirm(ctx, m, endpoint{ip: netip.IPv4Unspecified()}, broadcast(), time.Now().Add(x.o.Timeout), yourAddr(offer))
}

// confirm sends a request and stores the server's acknowledgement.
func (x *exchange4) confirm(ctx context.Context, m *dhcpv4.DHCPv4, from, to endpoint, until time.Time, want netip.Addr) error {
	ack, server, err := x.ask(ctx, m, from, to, until, func(m *dhcpv4.DHCPv4) bool {
		return m.MessageType() == dhcpv4.MessageTypeNak || m.MessageType() == dhcpv4.MessageTypeAck && yourAddr(m) == want
	})
	if err != nil {
		return fmt.Errorf("no DHCP server acknowledges %s on %s: %w", want, x.l.name, err)
	}
	if ack.MessageType() == dhcpv4.MessageTypeNak {
		return &refusal{fmt.Sprintf("%s refuses %s: %q", server.ip, want, ack.Message())}
	}
	if !x.address().IsValid() {
		if err := x.refuse4(ack); err != nil {
			return err
		}
	}
	seconds := func(o dhcpv4.OptionCode, otherwise uint32) uint32 {
		if b := ack.Options.Get(o); len(b) == 4 {
			return binary.BigEndian.Uint32(b)
		}
		return otherwise
	}
	lease := seconds(dhcpv4.OptionIPAddressLeaseTime, 3600)
	if lease == 0 {
		return &refusal{fmt.Sprintf("%s offers %s with a lease time of 0", server.ip, want)}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.acknowledged(ack, server.mac,
		newTerm(uptime(), seconds(dhcpv4.OptionRenewTimeValue, 0), seconds(dhcpv4.OptionRebindingTimeValue, 0), lease, 0.875))
	return nil
}

// ask sends a message repeatedly until it accepts an answer, the context ends, or until is reached (zero: never).
func (x *exchange4) ask(ctx context.Context, m *dhcpv4.DHCPv4, from, to endpoint, until time.Time, accept func(*dhcpv4.DHCPv4) bool) (*dhcpv4.DHCPv4, endpoint, error) {
	from.mac = x.l.mac
	b := newBackoff(min(x.o.Timeout, x.o.ResendMax))
	var last error
	for ctx.Err() == nil && (until.IsZero() || time.Now().Before(until)) {
		release, err := x.o.inFlight.acquire(ctx)
		if err != nil {
			break
		}
		m.NumSeconds = uint16(min(time.Since(x.started)/time.Second, 0xffff))
		if last = x.socket.SendFrame(frame(from, to, m.ToBytes())); last != nil {
			last = fmt.Errorf("send on %s: %w", x.l.name, last)
		}
		wait := time.Now().Add(b.next())
		if !until.IsZero() && wait.After(until) {
			wait = until
		}
		got, server, err := x.listen(ctx, wait, accept)
		release()
		if err == nil {
			return got, server, nil
		}
	}
	if ctx.Err() != nil {
		return nil, endpoint{}, errors.Join(last, context.Cause(ctx))
	}
	return nil, endpoint{}, errors.Join(last, errNoAnswer)
}

// listen waits for an acceptable answer.
func (x *exchange4) listen(ctx context.Context, until time.Time, accept func(*dhcpv4.DHCPv4) bool) (*dhcpv4.DHCPv4, endpoint, error) {
	b := make([]byte, 2048)
	for {
		n, _, err := x.socket.Receive(ctx, b, until)
		if err != nil {
			if ctx.Err() == nil && time.Now().Before(until) {
				sleep(ctx, time.Until(until)) // the link is down: sending again at once would not help
			}
			return nil, endpoint{}, err
		}
		payload, server, err := datagram(b[:n])
		if err != nil {
			continue
		}
		m, err := parse4(payload)
		if err == nil && m.OpCode == dhcpv4.OpcodeBootReply && m.TransactionID == x.xid && slices.Equal(m.ClientHWAddr, x.l.mac) && accept(m) {
			return m, server, nil
		}
	}
}

// parse4 parses a message. A server may put options into the fields for a file and a server's name: RFC 2132, section
// 9.3.
func parse4(b []byte) (*dhcpv4.DHCPv4, error) {
	m, err := dhcpv4.FromBytes(b)
	if err != nil {
		return nil, err
	}
	const overload, inFile, inName = uint8(52), 1, 2
	var where byte
	if v := m.Options[overload]; len(v) == 1 {
		where = v[0]
	}
	delete(m.Options, overload)
	if where&inFile != 0 {
		m.BootFileName, err = "", m.Options.FromBytes(b[108:236])
	}
	if where&inName != 0 && err == nil {
		m.ServerHostName, err = "", m.Options.FromBytes(b[44:108])
	}
	return m, err
}
