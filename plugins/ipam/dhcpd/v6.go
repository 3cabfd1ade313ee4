package dhcpd

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/packet"
)

// These are the ports and the servers' multicast group of DHCPv6.
const (
	clientPort6 = 546
	serverPort6 = 547
	servers6    = "ff02::1:2"
)

// releaseWait limits the time that a release waits for its acknowledgement, if the link was not down before.
const releaseWait = time.Second

// v6 is a DHCPv6 client for one address (IA_NA).
type v6 struct {
	client
	Reply []byte     // the server's last reply
	IP    netip.Addr // the address in it; zero in leases of earlier versions: the first one
	Term  term
}

func (p *v6) label() string { return "DHCPv6" }
func (p *v6) term() *term   { return &p.Term }

func (p *v6) reply() *dhcpv6.Message {
	m, err := dhcpv6.MessageFromBytes(p.Reply)
	if err != nil {
		return nil
	}
	return m
}

// duid returns the attachment's DUID, the same after every restart: a UUID (RFC 6355) derived from its name.
func duid(id string) *dhcpv6.DUIDUUID {
	d := &dhcpv6.DUIDUUID{}
	raw, _ := hex.DecodeString(kernel.Owner{Network: "duid", ContainerID: id}.Hash()[:32])
	copy(d.UUID[:], raw)
	return d
}

// iaid returns the ID of an attachment's only identity association.
func iaid() [4]byte { return [4]byte{0, 0, 0, 1} }

// message starts a message; had is an address to request, or zero.
func (p *v6) message(typ dhcpv6.MessageType, server dhcpv6.DUID, had netip.Addr) *dhcpv6.Message {
	m := &dhcpv6.Message{MessageType: typ}
	m.AddOption(dhcpv6.OptClientID(duid(p.id)))
	if server != nil {
		m.AddOption(dhcpv6.OptServerID(server))
	}
	ia := &dhcpv6.OptIANA{IaId: iaid()}
	if had.IsValid() {
		ia.Options.Add(&dhcpv6.OptIAAddress{IPv6Addr: had.AsSlice()})
	}
	m.AddOption(ia)
	if p.conf.WantsDNS() && typ != dhcpv6.MessageTypeRelease {
		m.AddOption(dhcpv6.OptRequestedOption(dhcpv6.OptionDNSRecursiveNameServer, dhcpv6.OptionDomainSearchList))
	}
	return m
}

// acquire gets an address. After a loss it accepts only the same one.
func (p *v6) acquire(ctx context.Context, l *link) error {
	had := p.address()
	var refused error // why the last offer failed
	for pause := newBackoff(p.o.ResendMax); ; sleep(ctx, pause.next()) {
		offer, err := p.ask(ctx, l, p.message(dhcpv6.MessageTypeSolicit, nil, had), time.Time{}, func(m *dhcpv6.Message) bool {
			a := address6(m)
			return m.MessageType == dhcpv6.MessageTypeAdvertise && m.Options.ServerID() != nil && a.IsValid() && (!had.IsValid() || a == had)
		})
		if err != nil {
			return first(refused, fmt.Errorf("no DHCPv6 server offers an address on %s: %w", l.name, err))
		}
		m := p.message(dhcpv6.MessageTypeRequest, offer.Options.ServerID(), address6(offer))
		if refused = p.confirm(ctx, l, m, address6(offer)); refused == nil || ctx.Err() != nil {
			return refused
		}
	}
}

// renew asks the server, or with rebind any server, to extend the lease. A server that does not know the lease is asked for
// the address: RFC 8415, section 18.2.10.1.
func (p *v6) renew(ctx context.Context, l *link, rebind bool) error {
	server, typ := p.reply().Options.ServerID(), dhcpv6.MessageTypeRenew
	if rebind {
		server, typ = nil, dhcpv6.MessageTypeRebind
	}
	err := p.confirm(ctx, l, p.message(typ, server, p.address()), p.address())
	if unknown, is := errors.AsType[*noBinding](err); is {
		return p.confirm(ctx, l, p.message(dhcpv6.MessageTypeRequest, unknown.server, p.address()), p.address())
	}
	return err
}

// noBinding is the error if a server does not know the lease that it was asked to extend.
type noBinding struct{ server dhcpv6.DUID }

func (n *noBinding) Error() string { return "the DHCPv6 server does not know the lease" }

// confirm sends a message and stores the server's reply.
func (p *v6) confirm(ctx context.Context, l *link, m *dhcpv6.Message, want netip.Addr) error {
	extends := m.MessageType != dhcpv6.MessageTypeRequest
	var ia *dhcpv6.OptIANA
	var info *dhcpv6.OptIAAddress
	var refused error
	reply, err := p.ask(ctx, l, m, time.Now().Add(p.o.Timeout), func(m *dhcpv6.Message) bool {
		if m.MessageType != dhcpv6.MessageTypeReply || m.Options.ServerID() == nil {
			return false
		}
		ia, info, refused = answer6(m, want, extends)
		return info != nil || refused != nil
	})
	if err != nil {
		return fmt.Errorf("no DHCPv6 server confirms %s on %s: %w", want, l.name, err)
	}
	if refused != nil {
		return refused
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Reply, p.IP = reply.ToBytes(), want
	p.Term = newTerm(uptime(), uint32(ia.T1/time.Second), uint32(ia.T2/time.Second), uint32(info.ValidLifetime/time.Second), 0.8)
	return nil
}

// answer6 returns what a reply says about the wanted address: its association and its lifetime, or why the server refuses
// it. A reply to a message that extends a lease may say nothing about the address, for example because the server fails at
// the moment. Then the lease stays as it is, and all results are nil: RFC 8415, section 18.2.10.1.
func answer6(m *dhcpv6.Message, want netip.Addr, extends bool) (*dhcpv6.OptIANA, *dhcpv6.OptIAAddress, error) {
	refused := &refusal{fmt.Sprintf("the DHCPv6 server refuses %s: %s", want, status6(m))}
	ia := ownIA(m)
	if s := m.Options.Status(); ia == nil || s != nil && s.StatusCode != iana.StatusSuccess {
		if extends {
			return nil, nil, nil
		}
		return nil, nil, refused
	}
	if s := ia.Options.Status(); s != nil && s.StatusCode != iana.StatusSuccess {
		switch {
		case extends && s.StatusCode == iana.StatusNoBinding:
			return nil, nil, &noBinding{m.Options.ServerID()}
		case extends && s.StatusCode == iana.StatusUnspecFail:
			return nil, nil, nil
		}
		return nil, nil, refused
	}
	for _, info := range ia.Options.Addresses() {
		if a, _ := netip.AddrFromSlice(info.IPv6Addr); a != want {
			continue
		}
		if info.ValidLifetime == 0 {
			return nil, nil, refused
		}
		return ia, info, nil
	}
	if extends {
		return nil, nil, nil
	}
	return nil, nil, refused
}

// ownIA returns this client's identity association in a message, or nil.
func ownIA(m *dhcpv6.Message) *dhcpv6.OptIANA {
	for _, ia := range m.Options.IANA() {
		if ia.IaId == iaid() {
			return ia
		}
	}
	return nil
}

// release releases the address.
func (p *v6) release(ctx context.Context, l *link) error {
	last := p.reply()
	if last == nil || p.Term.over(uptime()) {
		return nil
	}
	m := p.message(dhcpv6.MessageTypeRelease, last.Options.ServerID(), p.address())
	wait := releaseWait
	if l.raised {
		wait = p.o.Timeout
	}
	_, err := p.ask(ctx, l, m, time.Now().Add(wait), func(m *dhcpv6.Message) bool { return m.MessageType == dhcpv6.MessageTypeReply })
	return err
}

// ask sends a message repeatedly until it accepts an answer, the context ends, or until is reached (zero: never).
func (p *v6) ask(ctx context.Context, l *link, m *dhcpv6.Message, until time.Time, accept func(*dhcpv6.Message) bool) (*dhcpv6.Message, error) {
	xid, err := dhcpv6.GenerateTransactionID()
	if err != nil {
		return nil, err
	}
	m.TransactionID = xid
	started, pause := time.Now(), newBackoff(min(p.o.Timeout, p.o.ResendMax))
	var last error
	for ctx.Err() == nil && (until.IsZero() || time.Now().Before(until)) {
		release, err := p.o.inFlight.acquire(ctx)
		if err != nil {
			break
		}
		wait := time.Now().Add(pause.next())
		if !until.IsZero() && wait.After(until) {
			wait = until
		}
		m.UpdateOption(dhcpv6.OptElapsedTime(time.Since(started)))
		var got *dhcpv6.Message
		got, last = p.once(ctx, l, m, wait, accept)
		release()
		if last == nil {
			return got, nil
		}
		if time.Now().Before(wait) {
			sleep(ctx, time.Until(wait)) // sending failed: the address is not ready, or the link is down
		}
	}
	if ctx.Err() != nil {
		return nil, errors.Join(last, context.Cause(ctx))
	}
	return nil, errors.Join(last, errNoAnswer)
}

// once sends a message and waits for its answer.
func (p *v6) once(ctx context.Context, l *link, m *dhcpv6.Message, until time.Time, accept func(*dhcpv6.Message) bool) (*dhcpv6.Message, error) {
	s, err := p.open(ctx, l, until)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	if err := s.SendTo6(m.ToBytes(), netip.AddrPortFrom(netip.MustParseAddr(servers6), serverPort6), l.index); err != nil {
		return nil, err
	}
	b := make([]byte, 4096)
	for {
		n, _, err := s.Receive(ctx, b, until)
		if err != nil {
			return nil, err
		}
		got, err := dhcpv6.MessageFromBytes(b[:n])
		if err != nil || got.TransactionID != m.TransactionID || !sameDUID(got.Options.ClientID(), duid(p.id)) {
			continue
		}
		if accept(got) {
			return got, nil
		}
	}
}

// open opens the client's socket. The port is taken for a moment if this process starts another one: until that one
// executes its program, it has a copy of the last attempt's socket.
func (p *v6) open(ctx context.Context, l *link, until time.Time) (*packet.Socket, error) {
	for {
		s, err := packet.OpenUDP6(l.ns, l.index, netip.AddrPortFrom(l.local(), clientPort6))
		if !errors.Is(err, syscall.EADDRINUSE) || ctx.Err() != nil || time.Now().After(until) {
			return s, err
		}
		sleep(ctx, 10*time.Millisecond)
	}
}

func sameDUID(a, b dhcpv6.DUID) bool {
	return a != nil && slices.Equal(a.ToBytes(), b.ToBytes())
}

// address6 returns the address with a lifetime in a message, or zero.
func address6(m *dhcpv6.Message) (a netip.Addr) {
	if m == nil {
		return a
	}
	ia := ownIA(m)
	if ia == nil || ia.Options.Status() != nil && ia.Options.Status().StatusCode != iana.StatusSuccess {
		return a
	}
	for _, info := range ia.Options.Addresses() {
		if a, _ := netip.AddrFromSlice(info.IPv6Addr); info.ValidLifetime > 0 && isUnicast(a) {
			return a
		}
	}
	return a
}

// status6 returns the reason why a message contains no address.
func status6(m *dhcpv6.Message) string {
	s := m.Options.Status()
	if ia := ownIA(m); ia != nil && ia.Options.Status() != nil {
		s = ia.Options.Status()
	}
	if s == nil {
		return "the reply contains no address"
	}
	return s.StatusCode.String() + " " + s.StatusMessage
}

func (p *v6) address() netip.Addr {
	if p.IP.IsValid() {
		return p.IP
	}
	return address6(p.reply())
}

func (p *v6) valid(now time.Duration) netConfig {
	if p.Term.over(now) {
		return netConfig{}
	}
	return p.held()
}

func (p *v6) held() netConfig {
	a := p.address()
	if !a.IsValid() {
		return netConfig{}
	}
	g := netConfig{IPs: []cni.IP{{Address: netip.PrefixFrom(a, 128)}}}
	if m := p.reply(); p.conf.WantsDNS() {
		for _, ip := range m.Options.DNS() {
			g.DNS.Nameservers = append(g.DNS.Nameservers, ip.String())
		}
		if s := m.Options.DomainSearchList(); s != nil {
			g.DNS.Search = s.Labels
		}
	}
	return g
}
