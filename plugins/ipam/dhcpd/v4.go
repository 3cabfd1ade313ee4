package dhcpd

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/fairlead/fairlead/cni"
	addr "github.com/fairlead/fairlead/plugins/ipam"
)

// v4 is a DHCPv4 client. Its exported fields are stored.
type v4 struct {
	client
	ACK    []byte // the server's last acknowledgement
	Added  []byte // the first one, which ADD reported: its subnet mask and routes stay
	Server net.HardwareAddr
	Term   term
}

// client holds what every protocol needs.
type client struct {
	id   string // container/network/interface
	conf *addr.DHCPConf
	o    *Options
	mu   *sync.Mutex // the lease's: held for every change that other goroutines may see
}

func (p *v4) label() string { return "DHCPv4" }
func (p *v4) term() *term   { return &p.Term }

// acknowledged notes an acknowledgement. The runtime and the record know only what ADD reported, so a later one extends the
// lease and changes neither the subnet mask nor routes.
func (p *v4) acknowledged(ack *dhcpv4.DHCPv4, server net.HardwareAddr, t term) {
	last := p.reply()
	p.ACK, p.Server, p.Term = ack.ToBytes(), server, t
	if last == nil {
		p.Added = p.ACK
		_, ignored := routes4(ack, p.config(ack).IPs[0].Address, p.conf.Priority)
		for _, what := range ignored {
			p.log("%s: ignored what %s assigns: %s", p.id, serverOf(ack), what)
		}
		return
	}
	was, is := p.config(last), p.config(ack)
	if !is.without(was).empty() || !was.without(is).empty() {
		p.log("%s: the server changed the router or the routes: %s; the container keeps those of its ADD: %s",
			p.id, routesText(is.Routes), routesText(p.held().Routes))
	}
}

func (c *client) log(format string, args ...any) {
	if c.o.Log != nil {
		c.o.Log(fmt.Sprintf(format, args...))
	}
}

func routesText(routes []cni.Route) string {
	var out []string
	for _, rt := range routes {
		out = append(out, fmt.Sprintf("%s via %s", rt.Dst, rt.GW))
	}
	if out == nil {
		return "none"
	}
	return strings.Join(out, ", ")
}

// reply returns the server's last acknowledgement, or nil before the first.
func (p *v4) reply() *dhcpv4.DHCPv4 { return parseACK(p.ACK) }

func parseACK(b []byte) *dhcpv4.DHCPv4 {
	m, err := dhcpv4.FromBytes(b)
	if err != nil {
		return nil
	}
	return m
}

// acquire gets an address. After a loss it accepts only the same one.
func (p *v4) acquire(ctx context.Context, l *link) error {
	x, err := p.begin(l)
	if err != nil {
		return err
	}
	defer x.socket.Close()
	var refused error // why the last offer failed
	for pause := newBackoff(p.o.ResendMax); ; sleep(ctx, pause.next()) {
		offer, _, err := x.ask(ctx, x.discover(), endpoint{ip: netip.IPv4Unspecified()}, broadcast(), time.Time{}, x.offered)
		if err != nil {
			return first(first(refused, x.unusable), fmt.Errorf("no DHCP server offers an address on %s: %w", l.name, err))
		}
		if refused = x.request(ctx, offer); refused == nil || ctx.Err() != nil {
			return refused
		}
	}
}

// renew asks the server, or with rebind any server, to extend the lease.
func (p *v4) renew(ctx context.Context, l *link, rebind bool) error {
	x, err := p.begin(l)
	if err != nil {
		return err
	}
	defer x.socket.Close()
	last := p.reply()
	own := endpoint{ip: yourAddr(last)}
	to := p.server(last)
	if rebind {
		to = broadcast()
	}
	return x.confirm(ctx, x.message(dhcpv4.MessageTypeRequest, own.ip), own, to, time.Now().Add(p.o.Timeout), own.ip)
}

// release releases the address. Servers do not acknowledge this. So on a link that was down, release renews the lease
// first: the server's answer shows that packets pass.
func (p *v4) release(ctx context.Context, l *link) error {
	last := p.reply()
	if last == nil || p.Term.over(uptime()) {
		return nil
	}
	if l.raised {
		_ = p.renew(ctx, l, false) // without an answer, the release may arrive nevertheless
	}
	x, err := p.begin(l)
	if err != nil {
		return err
	}
	defer x.socket.Close()
	own := endpoint{l.mac, yourAddr(last)}
	m := x.message(dhcpv4.MessageTypeRelease, own.ip, dhcpv4.OptServerIdentifier(last.ServerIdentifier()))
	return x.socket.SendFrame(frame(own, p.server(last), m.ToBytes()))
}

// server returns the server that sent an acknowledgement. One that did not name itself is reached by broadcast.
func (p *v4) server(ack *dhcpv4.DHCPv4) endpoint {
	if a := serverOf(ack); a.IsValid() {
		return endpoint{p.Server, a}
	}
	return broadcast()
}

func yourAddr(m *dhcpv4.DHCPv4) netip.Addr {
	if m == nil {
		return netip.Addr{}
	}
	a, _ := netip.AddrFromSlice(m.YourIPAddr.To4())
	if a.IsUnspecified() {
		return netip.Addr{}
	}
	return a
}

func serverOf(m *dhcpv4.DHCPv4) netip.Addr {
	a, _ := netip.AddrFromSlice(m.ServerIdentifier().To4())
	return a
}

// address returns the assigned address.
func (p *v4) address() netip.Addr { return yourAddr(p.reply()) }

func (p *v4) valid(now time.Duration) netConfig {
	if p.Term.over(now) {
		return netConfig{}
	}
	return p.held()
}

func (p *v4) held() netConfig {
	m := parseACK(p.Added)
	if m == nil {
		return netConfig{}
	}
	return p.config(m)
}

// config returns what an acknowledgement assigns.
func (p *v4) config(m *dhcpv4.DHCPv4) netConfig {
	bits, _ := m.SubnetMask().Size()
	if bits == 0 { // no mask, or not ones before zeros
		bits, _ = m.YourIPAddr.DefaultMask().Size()
	}
	ip := cni.IP{Address: netip.PrefixFrom(yourAddr(m), bits)}
	var g netConfig
	g.Routes, _ = routes4(m, ip.Address, p.conf.Priority)
	for _, rt := range slices.Backward(g.Routes) {
		if rt.Dst.Bits() == 0 {
			ip.Gateway = rt.GW
		}
	}
	for _, r := range slices.Backward(m.Router()) {
		if gw := fromIP(r); refuseGateway(gw, ip.Address) == "" {
			ip.Gateway = gw
		}
	}
	g.IPs = []cni.IP{ip}
	if p.conf.WantsDNS() {
		g.DNS = dns4(m)
	}
	return g
}
