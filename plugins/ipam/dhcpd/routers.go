package dhcpd

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel/packet"
)

// routers is the configuration from router advertisements. The daemon solicits routers regularly. A prefix or route
// that routers no longer advertise, or withdraw, ends with its lifetime.
type routers struct {
	client
	Items []item
	Term  term

	DNS cni.DNS // from the last advertisement
}

// item is an address, an on-link prefix or a route, with the end of its lifetime.
type item struct {
	Addr   netip.Prefix // an address of this client with its prefix length, or
	OnLink netip.Prefix // an on-link prefix, or
	Dst    netip.Prefix // the destination of a route
	Via    netip.Addr   // through this router
	Expire time.Duration
}

// sameAs reports whether both are the same apart from the lifetime.
func (i item) sameAs(o item) bool {
	return i.Addr == o.Addr && i.OnLink == o.OnLink && i.Dst == o.Dst && i.Via == o.Via
}

// askAgain is the longest time between solicitations, so that withdrawals are noticed.
const askAgain = 10 * time.Minute

func (p *routers) label() string { return "router advertisement" }
func (p *routers) term() *term   { return &p.Term }

// acquire solicits routers until a usable advertisement arrives.
func (p *routers) acquire(ctx context.Context, l *link) error {
	s, err := packet.OpenICMP6(l.ns, l.index, routerAdvertisement)
	if err != nil {
		return err
	}
	defer s.Close()
	pause := newBackoff(min(p.o.Timeout, p.o.ResendMax))
	b := make([]byte, 4096)
	var last error
	for ctx.Err() == nil {
		release, err := p.o.inFlight.acquire(ctx)
		if err != nil {
			break
		}
		last = s.SendTo6(solicitation(l.mac), netip.AddrPortFrom(netip.MustParseAddr("ff02::2"), 0), l.index)
		wait := time.Now().Add(pause.next())
		useful := p.listen(ctx, s, l, b, wait)
		release()
		if useful {
			return nil
		}
		if last != nil && time.Now().Before(wait) {
			sleep(ctx, time.Until(wait))
		}
	}
	return fmt.Errorf("no router answers on %s: %w", l.name, errors.Join(last, context.Cause(ctx)))
}

// listen waits for a usable advertisement.
func (p *routers) listen(ctx context.Context, s *packet.Socket, l *link, b []byte, until time.Time) bool {
	for {
		n, from, err := s.Receive(ctx, b, until)
		if err != nil {
			return false
		}
		a, err := parseAdvertisement(b[:n])
		if err == nil && from.IsLinkLocalUnicast() && p.process(uptime(), a, from, l) {
			return true
		}
	}
}

func (p *routers) renew(ctx context.Context, l *link, _ bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, p.o.Timeout, errNoAnswer)
	defer cancel()
	return p.acquire(ctx, l)
}

func (p *routers) release(context.Context, *link) error { return nil }

// process processes an advertisement and reports whether it was usable. The first one sets the configuration, and later
// ones only change lifetimes.
func (p *routers) process(now time.Duration, a *advertisement, from netip.Addr, l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	items := p.items(now, a, from, l)
	if len(p.Items) == 0 {
		for _, i := range items {
			if i.Expire > now && !slices.ContainsFunc(p.Items, i.sameAs) { // an option may be there twice
				p.Items = append(p.Items, i)
			}
		}
	}
	p.replaceDefault(now, items)
	updated := false
	for _, i := range items {
		for k := range p.Items {
			if p.Items[k].sameAs(i) {
				p.Items[k].Expire, updated = p.Items[k].until(now, i.Expire), true
			}
		}
	}
	if !updated {
		return false
	}
	p.DNS = cni.DNS{Search: a.search}
	for _, d := range a.dns {
		p.DNS.Nameservers = append(p.DNS.Nameservers, d.String())
	}
	first := forever
	for _, i := range p.Items {
		first = min(first, i.Expire)
	}
	p.Term = term{Expire: first, Rebind: forever, Renew: now + askAgain, Pause: askAgain}
	if first != forever {
		p.Term.Rebind = now + (first-now)/10*9 // a lifetime in nanoseconds has few bits to spare
		p.Term.Renew = min(p.Term.Renew, now+(first-now)/2)
	}
	return true
}

// replaceDefault replaces default routes that have expired if another router advertises one.
func (p *routers) replaceDefault(now time.Duration, items []item) {
	isDefault := func(i item) bool { return i.Dst.IsValid() && i.Dst.Bits() == 0 }
	alive := func(i item) bool { return isDefault(i) && i.Expire > now }
	next := slices.IndexFunc(items, alive)
	if next < 0 || !slices.ContainsFunc(p.Items, isDefault) || slices.ContainsFunc(p.Items, alive) {
		return
	}
	p.Items = append(slices.DeleteFunc(p.Items, isDefault), items[next])
}

// shortest is the lifetime to which an advertisement may shorten that of an address: RFC 4862, section 5.5.3 e. Everybody on
// the link can send one.
const shortest = 2 * time.Hour

// until returns the new end of a lifetime after an advertisement.
func (i item) until(now, advertised time.Duration) time.Duration {
	if i.Addr.IsValid() {
		return max(advertised, min(i.Expire, now+shortest))
	}
	return advertised
}

func (p *routers) items(now time.Duration, a *advertisement, from netip.Addr, l *link) (out []item) {
	for _, i := range a.prefixes {
		expire := lifetime(now, i.valid)
		if i.auto && i.prefix.Bits() == 64 {
			out = append(out, item{Addr: netip.PrefixFrom(withMAC(i.prefix, l.mac), 64), Expire: expire})
		}
		if i.onLink {
			out = append(out, item{OnLink: i.prefix, Expire: expire})
		}
	}
	byOption := false // which overrides the header: RFC 4191, section 3.1
	for _, i := range a.routes {
		out = append(out, item{Dst: i.prefix, Via: from, Expire: lifetime(now, i.lifetime)})
		byOption = byOption || i.prefix.Bits() == 0
	}
	if byOption {
		return out
	}
	return append(out, item{Dst: netip.PrefixFrom(netip.IPv6Unspecified(), 0), Via: from, Expire: lifetime(now, a.lifetime)})
}

func (p *routers) valid(now time.Duration) netConfig {
	return p.collect(func(i item) bool { return i.Expire > now })
}

func (p *routers) held() netConfig { return p.collect(func(item) bool { return true }) }

func (p *routers) collect(keep func(item) bool) (g netConfig) {
	for _, i := range p.Items {
		switch {
		case !keep(i):
		case i.Addr.IsValid():
			g.IPs = append(g.IPs, cni.IP{Address: i.Addr, Gateway: p.gateway()})
		case i.OnLink.IsValid():
			g.OnLink = append(g.OnLink, i.OnLink)
		default:
			g.Routes = append(g.Routes, cni.Route{Dst: i.Dst, GW: i.Via, Priority: p.conf.Priority})
		}
	}
	if p.conf.WantsDNS() {
		g.DNS = p.DNS
	}
	return g
}

func (p *routers) gateway() netip.Addr {
	for _, i := range p.Items {
		if i.Dst.IsValid() && i.Dst.Bits() == 0 {
			return i.Via
		}
	}
	return netip.Addr{}
}
