package dhcpd

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/plugin"
)

// maintain starts one goroutine per protocol, which renews the lease, and one that stores it.
func (l *lease) maintain() {
	l.mu.Lock()
	l.ready = true
	l.mu.Unlock()
	l.done.Go(l.keepSaved)
	for _, p := range l.protocols {
		l.done.Go(func() { l.maintainProtocol(l.ctx, p) })
	}
}

func (l *lease) isReady() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ready
}

// finish marks the end of a lease and reports whether this was the first call.
func (l *lease) finish() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.ended
	l.ended = true
	return !was
}

// maintainProtocol maintains one protocol of the lease.
func (l *lease) maintainProtocol(ctx context.Context, p protocol) {
	pause := newBackoff(l.d.o.ResendMax)
	l.mu.Lock()
	due := p.term().next(uptime(), false)
	l.mu.Unlock()
	for {
		if !sleep(ctx, min(max(0, due-uptime()), l.d.o.checkInterval)) {
			return
		}
		if _, err := l.netnsPath(); errors.Is(err, errGone) {
			l.forget(err.Error())
			return
		}
		if uptime() < due {
			continue
		}
		err := l.contain(p, func() error { return l.runDue(ctx, p) })
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

// contain turns a panic into an error: one lease must not end the daemon, which maintains all others.
func (l *lease) contain(p protocol, f func() error) (err error) {
	defer func() {
		if x := recover(); x != nil {
			l.d.log("%s: %s: panic: %v\n%s", l, p.label(), x, debug.Stack())
			err = fmt.Errorf("panic: %v", x)
		}
	}()
	return f()
}

// runDue performs the action that is due.
func (l *lease) runDue(ctx context.Context, p protocol) error {
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
	leave, err := l.d.renewals.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	now := uptime()
	what := p.term().phase(now)
	switch what {
	case renewing, rebinding:
		err = l.renew(ctx, p, link, now)
	case lost:
		err = errors.Join(l.updateInterface(p, link), l.reacquire(ctx, p, link))
	}
	if r, ok := errors.AsType[*refusal](err); ok && what != lost {
		l.mu.Lock()
		p.term().Refused = r.why
		l.mu.Unlock()
	}
	l.saveLater()
	return errors.Join(err, l.updateInterface(p, link))
}

// renew tries to extend a lease until its phase ends: an attempt of a short lease must not use up the time of the next phase.
func (l *lease) renew(ctx context.Context, p protocol, link *link, now time.Duration) error {
	t := p.term()
	ctx, cancel := context.WithTimeoutCause(ctx, t.end(now)-now, errNoAnswer)
	defer cancel()
	return p.renew(ctx, link, t.phase(now) == rebinding)
}

// reacquire tries to get back a lost address.
func (l *lease) reacquire(ctx context.Context, p protocol, link *link) error {
	ctx, cancel := context.WithTimeoutCause(ctx, l.d.o.Timeout, errNoAnswer)
	defer cancel()
	return p.acquire(ctx, link)
}

// updateInterface adds addresses and routes that became valid again, and removes those that are no longer valid.
func (l *lease) updateInterface(p protocol, link *link) error {
	l.mu.Lock()
	valid, held, before := p.valid(uptime()), p.held(), l.applied[p]
	gone, back := before.without(valid), valid.without(before)
	why := p.term().Refused
	l.mu.Unlock()
	if !gone.empty() {
		if why == "" {
			why = "the lease expired and no server extended it"
		}
		l.d.log("%s: lost %s: %s: %s", l, p.label(), strings.Join(gone.describe(), ", "), why)
	}
	if !back.empty() {
		l.d.log("%s: %s assigned %s again", l, p.label(), strings.Join(back.describe(), ", "))
	}
	var err error
	if changed := !gone.empty() || !back.empty(); changed && len(held.IPs)+len(held.Routes) > 0 {
		err = link.engine(func(e *kernel.Engine) error {
			err := e.Remove(gone.objects(link.name, l.result))
			for _, o := range append(back.objects(link.name, l.result), l.ownRoutes(link.name, back)...) {
				err = errors.Join(err, ignore(e.Apply(kernel.Objects{o}), errExist))
			}
			return err
		})
	}
	if err == nil { // else the next call tries again
		l.mu.Lock()
		l.applied[p] = valid
		l.mu.Unlock()
	}
	return err
}

// ownRoutes returns the configuration's own routes that depend on addresses that came back. The kernel deletes every
// IPv4 route of a link with its last address.
func (l *lease) ownRoutes(link string, back netConfig) kernel.Objects {
	assigned := &cni.Result{}
	for _, ip := range l.result.IPs {
		if slices.Contains(back.addresses(), ip.Address.Addr()) {
			assigned.IPs = append(assigned.IPs, ip)
		}
	}
	v4, v6 := plugin.Families(assigned)
	for _, rt := range l.own {
		if is4 := rt.Dst.Addr().Is4(); (is4 && v4 || !is4 && v6) && (!rt.GW.IsValid() || reachable(assigned, rt.GW)) {
			assigned.Routes = append(assigned.Routes, rt)
		}
	}
	return plugin.Routes(link, assigned)
}

// missing returns the parts of the lease that are not valid now, and why, or "" if all are valid.
func (l *lease) missing() (all netConfig, why string) {
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
			why = fmt.Sprintf("the lease expired %v ago", (now - p.term().Expire).Round(time.Second))
		}
		all.add(gone)
		out = append(out, fmt.Sprintf("%s lost %s: %s", p.label(), strings.Join(gone.describe(), ", "), why))
	}
	return all, strings.Join(out, "; ")
}

func ignore(err, what error) error {
	if errors.Is(err, what) {
		return nil
	}
	return err
}
