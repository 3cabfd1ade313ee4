package dhcpd

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
	addr "github.com/fairlead/fairlead/plugins/ipam"
)

// protocol is a way by which a network gives addresses.
type protocol interface {
	label() string
	// acquire gets what there is; after it was lost only the same.
	acquire(context.Context, *link) error
	renew(ctx context.Context, l *link, rebind bool) error
	release(context.Context, *link) error
	term() *term
	held() given                   // what the result said
	valid(now time.Duration) given // what of that still holds
}

// lease is what one attachment got from its network, and its upkeep: a
// goroutine for each protocol, which sleeps until something is due.
type lease struct {
	d     *Daemon
	saved saved
	conf  *addr.DHCPConf

	ctx  context.Context // ends with the lease, or the daemon
	stop context.CancelFunc
	done sync.WaitGroup
	turn chan struct{} // holds a token while the lease is got, changed or given back

	mu        sync.Mutex
	ready     bool // it was got, and is kept
	ended     bool // it is to be written down no more
	protocols []protocol
	applied   map[protocol]given // what is on the interface, as far as this daemon changed that
	result    *cni.Result
}

func (d *Daemon) newLease(s saved) (*lease, error) {
	conf, err := addr.ParseDHCP(s.Stdin, s.Args)
	if err != nil {
		return nil, err
	}
	l := &lease{d: d, saved: s, conf: conf, turn: make(chan struct{}, 1), applied: map[protocol]given{}}
	l.ctx, l.stop = context.WithCancel(d.ctx)
	c := client{id: s.ContainerID + "/" + s.Network + "/" + s.IfName, conf: conf, o: &d.o, mu: &l.mu}
	if conf.AcceptRA { // first: its prefixes tell the length of DHCPv6's
		l.protocols = append(l.protocols, &routers{client: c})
	}
	if conf.V6 {
		l.protocols = append(l.protocols, &v6{client: c})
	}
	if conf.V4 {
		l.protocols = append(l.protocols, &v4{client: c})
	}
	return l, nil
}

func (l *lease) String() string {
	return l.saved.ContainerID + "/" + l.saved.Network + "/" + l.saved.IfName
}

func (l *lease) open() (*link, error) {
	return openLink(l.d.o.HostPrefix+l.saved.Netns, l.saved.NetnsID, l.saved.IfName)
}

// acquire gets everything that the configuration asks for, or nothing.
func (l *lease) acquire(ctx context.Context) error {
	link, err := l.open()
	if err != nil {
		return err
	}
	defer link.close()
	if err := link.prepare(l.conf.V6 || l.conf.AcceptRA); err != nil {
		return fmt.Errorf("prepare %s: %w", link.name, err)
	}
	timed, cancel := context.WithTimeoutCause(ctx, l.d.o.ResendTimeout, fmt.Errorf("%w within %v", errNobody, l.d.o.ResendTimeout))
	defer cancel()
	each, cancelEach := context.WithCancelCause(timed)
	defer cancelEach(nil)
	errs := make(chan error, len(l.protocols))
	for _, p := range l.protocols {
		go func() {
			err := p.acquire(each, link)
			if err != nil {
				cancelEach(err)
			}
			errs <- err
		}()
	}
	for range l.protocols {
		err = first(err, <-errs)
	}
	if err == nil {
		err = l.complete()
	}
	if err == nil {
		err = context.Cause(ctx) // nobody waits for it any more
	}
	if err != nil {
		_ = l.giveBack(link)
	}
	return err
}

func first(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// complete works out the result.
func (l *lease) complete() error {
	var all given
	for _, p := range l.protocols {
		g := p.held()
		all.add(g)
		l.applied[p] = g
	}
	l.result = all.result()
	if len(l.result.IPs) == 0 {
		return errors.New("the network gives no address: its routers announce no prefix for containers to use")
	}
	for _, rt := range l.conf.Routes {
		if rt.GW.IsValid() && !reachable(l.result, rt.GW) {
			l.d.log("%s: route to %s is left out: its gateway %s is in no subnet of this lease, %v", l, rt.Dst, rt.GW, l.subnets())
			continue
		}
		l.result.Routes = append(l.result.Routes, rt)
	}
	return nil
}

func (l *lease) subnets() (out []netip.Prefix) {
	for _, ip := range l.result.IPs {
		out = append(out, ip.Address.Masked())
	}
	return out
}

func reachable(r *cni.Result, gw netip.Addr) bool {
	return gw.IsLinkLocalUnicast() || slices.ContainsFunc(r.IPs, func(ip cni.IP) bool { return ip.Address.Contains(gw) })
}

// giveBack releases what is held.
func (l *lease) giveBack(link *link) error {
	var errs []error
	for _, p := range l.protocols {
		ctx, cancel := context.WithTimeout(context.Background(), l.d.o.Timeout)
		errs = append(errs, p.release(ctx, link))
		cancel()
	}
	return errors.Join(errs...)
}

// keep begins the upkeep.
func (l *lease) keep() {
	l.mu.Lock()
	l.ready = true
	l.mu.Unlock()
	for _, p := range l.protocols {
		l.done.Go(func() { l.keepOne(l.ctx, p) })
	}
}

func (l *lease) isReady() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ready
}

// finish marks the end of a lease, and tells whether this call was the first.
func (l *lease) finish() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.ended
	l.ended = true
	return !was
}

// keepOne is the upkeep of one protocol.
func (l *lease) keepOne(ctx context.Context, p protocol) {
	pause := newBackoff(l.d.o.ResendMax)
	l.mu.Lock()
	due := p.term().next(uptime(), false)
	l.mu.Unlock()
	for {
		if !sleep(ctx, min(max(0, due-uptime()), l.d.o.look)) {
			return
		}
		if attach.NetnsID(l.d.o.HostPrefix+l.saved.Netns) != l.saved.NetnsID {
			l.forget("its network namespace is gone")
			return
		}
		if uptime() < due {
			continue
		}
		err := l.attend(ctx, p)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, errGone) {
			l.forget(err.Error())
			return
		}
		l.mu.Lock()
		now := uptime()
		due = p.term().next(now, err != nil)
		if p.term().phase(now) == lost {
			due = now + pause.next()
		} else {
			pause = newBackoff(l.d.o.ResendMax)
		}
		l.mu.Unlock()
	}
}

// attend does what is due.
func (l *lease) attend(ctx context.Context, p protocol) error {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	link, err := l.open()
	if err != nil {
		return err
	}
	defer link.close()
	leave, err := l.d.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	now := uptime()
	what := p.term().phase(now)
	switch what {
	case renewing, rebinding:
		err = p.renew(ctx, link, what == rebinding)
	case lost:
		err = errors.Join(l.settle(p, link), l.again(ctx, p, link))
	}
	if r, ok := errors.AsType[*refusal](err); ok && what != lost {
		l.mu.Lock()
		p.term().Refused = r.why
		l.mu.Unlock()
	}
	return errors.Join(err, l.settle(p, link), l.save())
}

// again tries to get back what was lost.
func (l *lease) again(ctx context.Context, p protocol, link *link) error {
	ctx, cancel := context.WithTimeoutCause(ctx, l.d.o.Timeout, errNobody)
	defer cancel()
	return p.acquire(ctx, link)
}

// settle puts on the interface what holds again, and takes off it what does
// not hold any more.
func (l *lease) settle(p protocol, link *link) error {
	l.mu.Lock()
	valid, held, before := p.valid(uptime()), p.held(), l.applied[p]
	gone, back := before.without(valid), valid.without(before)
	l.applied[p] = valid
	why := p.term().Refused
	l.mu.Unlock()
	if !gone.empty() {
		if why == "" {
			why = "its time is over, and nobody gave it more"
		}
		l.d.log("%s: lost %s: %s: %s", l, p.label(), strings.Join(gone.words(), ", "), why)
	}
	if !back.empty() {
		l.d.log("%s: %s gives %s again", l, p.label(), strings.Join(back.words(), ", "))
	}
	if gone.empty() && back.empty() || len(held.IPs) == 0 && len(held.Routes) == 0 {
		return nil
	}
	return link.engine(func(e *kernel.Engine) error {
		err := e.Remove(gone.objects(link.name, l.result))
		for _, o := range back.objects(link.name, l.result) {
			err = errors.Join(err, ignore(e.Apply(kernel.Objects{o}), errExist))
		}
		return err
	})
}

// missing is what of the lease does not hold now, in words; "" if it all does.
func (l *lease) missing() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	now := uptime()
	for _, p := range l.protocols {
		gone := p.held().without(p.valid(now))
		if gone.empty() {
			continue
		}
		why := p.term().Refused
		if why == "" {
			why = fmt.Sprintf("its time ended %v ago", (now - p.term().Expire).Round(time.Second))
		}
		out = append(out, fmt.Sprintf("%s lost %s: %s", p.label(), strings.Join(gone.words(), ", "), why))
	}
	return strings.Join(out, "; ")
}
