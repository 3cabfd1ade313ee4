package dhcpd

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/cni"
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
