package dhcpd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel/netns"
	addr "github.com/fairlead/fairlead/plugins/ipam"
)

// protocol is a protocol by which a network assigns addresses.
type protocol interface {
	label() string
	// acquire gets the configuration. After a loss it accepts only the same one.
	acquire(context.Context, *link) error
	renew(ctx context.Context, l *link, rebind bool) error
	release(context.Context, *link) error
	term() *term
	held() netConfig                   // as reported in the result
	valid(now time.Duration) netConfig // the part of held that is still valid
}

// lease is the configuration of one attachment and its maintenance: one goroutine per protocol, which sleeps until an
// action is due, and one that stores the lease.
type lease struct {
	d     *Daemon
	saved saved
	conf  *addr.DHCPConf

	ctx  context.Context // ends with the lease or the daemon
	stop context.CancelFunc
	done sync.WaitGroup
	turn chan struct{} // holds a token while the lease is acquired, changed or released

	file    sync.Mutex    // held while the lease's file is written or removed
	unsaved chan struct{} // holds a token while the file lacks a change

	mu        sync.Mutex
	elsewhere string // another path of the namespace, after the one of ADD is gone
	ready     bool   // acquired and being maintained
	ended     bool   // must not be stored any more
	protocols []protocol
	applied   map[protocol]netConfig // current state of the interface, if this daemon changed it
	result    *cni.Result
	own       []cni.Route // the configuration's own routes in result, which no protocol holds
}

func (d *Daemon) newLease(s saved) (*lease, error) {
	conf, err := addr.ParseDHCP(s.Stdin, s.Args)
	if err != nil {
		return nil, err
	}
	l := &lease{d: d, saved: s, conf: conf, turn: make(chan struct{}, 1), unsaved: make(chan struct{}, 1), applied: map[protocol]netConfig{}}
	l.ctx, l.stop = context.WithCancel(d.ctx)
	c := client{id: s.ContainerID + "/" + s.Network + "/" + s.IfName, conf: conf, o: &d.o, mu: &l.mu}
	if conf.AcceptRA { // first, because its prefixes provide the prefix length for DHCPv6
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
	path, err := l.netnsPath()
	if err != nil {
		return nil, err
	}
	return openLink(path, l.saved.namespace(), l.saved.IfName)
}

// netnsPath returns the path of the lease's network namespace: the one of its ADD or, if the runtime removed that path while
// the container runs, another one. The error is errGone if no path leads to the namespace. A path that cannot be examined
// may lead there.
func (l *lease) netnsPath() (string, error) {
	path, id := l.d.o.HostPrefix+l.saved.Netns, l.saved.namespace()
	if id.File == "" || mayBeAt(id, path) {
		return path, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.elsewhere != "" && mayBeAt(id, l.elsewhere) {
		return l.elsewhere, nil
	}
	all, err := netns.Paths()
	if err != nil {
		return "", err
	}
	if l.elsewhere = all[id]; l.elsewhere == "" {
		return "", fmt.Errorf("%w: its network namespace is gone, or has left %s", errGone, path)
	}
	return l.elsewhere, nil
}

func mayBeAt(id netns.ID, path string) bool {
	is, err := id.IsAt(path)
	return is || err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR)
}

// acquire gets everything that the configuration requests, or nothing.
func (l *lease) acquire(ctx context.Context) error {
	link, err := l.open()
	if err != nil {
		return err
	}
	defer link.close()
	if err := link.prepare(l.conf.V6 || l.conf.AcceptRA); err != nil {
		return fmt.Errorf("prepare %s: %w", link.name, err)
	}
	timed, cancel := context.WithTimeoutCause(ctx, l.d.o.ResendTimeout, fmt.Errorf("%w within %v", errNoAnswer, l.d.o.ResendTimeout))
	defer cancel()
	each, cancelEach := context.WithCancelCause(timed)
	defer cancelEach(nil)
	errs := make(chan error, len(l.protocols))
	for _, p := range l.protocols {
		go func() {
			err := l.contain(p, func() error { return p.acquire(each, link) })
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
		err = context.Cause(ctx) // the caller has gone
	}
	if err != nil {
		_ = l.releaseAll(link)
	}
	return err
}

func first(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// complete computes the result.
func (l *lease) complete() error {
	var all netConfig
	for _, p := range l.protocols {
		g := p.held()
		all.add(g)
		l.applied[p] = g
	}
	l.result = all.result()
	if len(l.result.IPs) == 0 {
		return errors.New("no address: the routers advertise no /64 prefix for autoconfiguration")
	}
	for _, rt := range l.conf.Routes {
		if rt.GW.IsValid() && !reachable(l.result, rt.GW) {
			l.d.log("%s: skipped the route to %s: its gateway %s is in no subnet of this lease, %v", l, rt.Dst, rt.GW, l.subnets())
			continue
		}
		l.own = append(l.own, rt)
	}
	l.result.Routes = append(l.result.Routes, l.own...)
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

// releaseAll releases the addresses. If a program in the container set the interface down, releaseAll sets it up.
func (l *lease) releaseAll(link *link) error {
	var errs []error
	if !link.up {
		errs = append(errs, link.prepare(l.conf.V6 || l.conf.AcceptRA))
		link.raised = true
	}
	for _, p := range l.protocols {
		ctx, cancel := context.WithTimeout(context.Background(), l.d.o.Timeout)
		errs = append(errs, l.contain(p, func() error { return p.release(ctx, link) }))
		cancel()
	}
	return errors.Join(errs...)
}
