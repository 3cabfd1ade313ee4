package dhcpd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
	addr "github.com/fairlead/fairlead/plugins/ipam"
)

// Options are the daemon's, under the names of the reference's flags.
type Options struct {
	SocketPath string // where it listens unless systemd gave it a socket; "": addr.DefaultDHCPSocket
	HostPrefix string // before the socket's path and every namespace's, for a daemon in a container
	PIDFile    string // gets the process's number; "": none
	Broadcast  bool   // servers are asked to answer by broadcast

	Timeout       time.Duration // the longest wait for one answer; 0: 10 s
	ResendMax     time.Duration // the longest pause between two messages; 0: 62 s
	ResendTimeout time.Duration // how long an ADD tries; 0: 208 s

	// Leases is the directory of leases; "": below the root of runtime state,
	// named after the socket.
	Leases string
	// Log gets a line for what a person may want to know; nil: nobody.
	Log func(line string)

	look time.Duration // how often a lease's namespace is looked for; 0: 30 s
	air  *air
}

// atOnce bounds the conversations that are held at the same time: each has
// open a connection, a namespace and a socket or two.
func atOnce() int {
	var files syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files) != nil {
		return 128
	}
	return int(min(4096, max(64, files.Cur/6)))
}

func (o Options) complete() Options {
	set := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	set(&o.Timeout, 10*time.Second)
	set(&o.ResendMax, 62*time.Second)
	set(&o.ResendTimeout, 208*time.Second)
	set(&o.look, 30*time.Second)
	if o.SocketPath == "" {
		o.SocketPath = addr.DefaultDHCPSocket
	}
	if o.Leases == "" {
		root := os.Getenv(attach.RootVariable)
		if root == "" {
			root = attach.DefaultRoot
		}
		o.Leases = filepath.Join(root, "dhcp", strings.Trim(strings.ReplaceAll(o.HostPrefix+o.SocketPath, "/", "_"), "_"))
	}
	return o
}

// Daemon keeps leases.
type Daemon struct {
	o     Options
	store *store
	slots chan struct{}

	ctx  context.Context // ends the upkeep
	stop context.CancelFunc

	mu     sync.Mutex
	leases map[kernel.Owner]*lease
}

// New makes a daemon and takes up the leases that an earlier one kept.
func New(o Options) (*Daemon, error) {
	d := &Daemon{o: o.complete(), slots: make(chan struct{}, atOnce()), leases: map[kernel.Owner]*lease{}}
	d.o.air = &air{make(chan struct{}, onAir)}
	var err error
	if d.store, err = openStore(d.o.Leases); err != nil {
		return nil, err
	}
	d.ctx, d.stop = context.WithCancel(context.Background())
	return d, d.resume()
}

func (d *Daemon) log(format string, args ...any) {
	if d.o.Log != nil {
		d.o.Log(fmt.Sprintf(format, args...))
	}
}

// resume takes up what was written down; what has ended meanwhile is dropped.
func (d *Daemon) resume() error {
	all, err := d.store.list()
	if err != nil {
		return err
	}
	for _, v := range all {
		l, err := d.load(v)
		if err == nil {
			var at *link
			if at, err = l.open(); err == nil {
				at.close()
			}
		}
		if err != nil {
			d.log("%s/%s/%s: the lease of an earlier daemon is dropped: %v", v.ContainerID, v.Network, v.IfName, err)
			if err := d.store.remove(v.owner()); err != nil {
				return err
			}
			continue
		}
		d.leases[v.owner()] = l
		l.keep()
	}
	if n := len(d.leases); n > 0 {
		d.log("%d leases taken up again", n)
	}
	return nil
}

// Close ends the upkeep; the leases stand, for the next daemon to take up.
func (d *Daemon) Close() {
	d.stop()
	d.mu.Lock()
	all := make([]*lease, 0, len(d.leases))
	for _, l := range d.leases {
		all = append(all, l)
	}
	d.mu.Unlock()
	for _, l := range all {
		l.done.Wait()
	}
	d.store.close()
}

// enter waits for one of the slots for conversations.
func (d *Daemon) enter(ctx context.Context) (leave func(), err error) {
	select {
	case d.slots <- struct{}{}:
		return func() { <-d.slots }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Request is what an operation is about.
type Request struct {
	ContainerID, Netns, IfName, Args string
	Stdin                            []byte // the configuration
}

// Allocate gets an attachment its addresses. For one that has them it is the
// same again, or an error if the network took them back: so the reference's
// plugin does its CHECK.
func (d *Daemon) Allocate(ctx context.Context, r Request) (*cni.Result, error) {
	conf, err := addr.ParseDHCP(r.Stdin, r.Args)
	if err != nil {
		return nil, err
	}
	s := saved{
		Boot: d.store.boot, Network: conf.Network, ContainerID: r.ContainerID, IfName: r.IfName,
		Netns: r.Netns, NetnsID: attach.NetnsID(d.o.HostPrefix + r.Netns), Created: uptime(), Args: r.Args, Stdin: r.Stdin,
	}
	l, err := d.newLease(s)
	if err != nil {
		return nil, err
	}
	standing, err := d.claim(l)
	if err != nil || standing != nil {
		return again(standing, err)
	}
	if err = d.acquire(ctx, l); err != nil {
		return nil, err
	}
	d.log("%s: got %s", l, strings.Join(given{IPs: l.result.IPs}.words(), ", "))
	return l.result.Clone(), nil
}

func again(standing *lease, err error) (*cni.Result, error) {
	if err != nil {
		return nil, err
	}
	if why := standing.missing(); why != "" {
		return nil, errors.New(why)
	}
	return standing.result.Clone(), nil
}

// acquire gets a lease, writes it down and begins its upkeep.
func (d *Daemon) acquire(ctx context.Context, l *lease) (err error) {
	defer func() {
		if err != nil {
			l.finish()
			l.stop()
			d.drop(l)
		}
		<-l.turn
	}()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(l.ctx, func() { cancel(errors.New("the attachment is being removed")) })()
	leave, err := d.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if err := l.acquire(ctx); err != nil {
		return err
	}
	if err := l.save(); err != nil {
		if at, e := l.open(); e == nil {
			_ = l.giveBack(at)
			at.close()
		}
		return err
	}
	l.keep()
	return nil
}

// claim makes a lease the one of its attachment, with its turn taken, unless
// another stands. One of an earlier namespace makes way.
func (d *Daemon) claim(l *lease) (standing *lease, err error) {
	for {
		d.mu.Lock()
		have := d.leases[l.saved.owner()]
		if have == nil {
			l.turn <- struct{}{}
			d.leases[l.saved.owner()] = l
		}
		d.mu.Unlock()
		switch {
		case have == nil:
			return nil, nil
		case !have.isReady():
			return nil, fmt.Errorf("another ADD of %s is waiting for its address", l)
		case have.saved.NetnsID == l.saved.NetnsID:
			return have, nil
		}
		if err := d.end(have); err != nil {
			return nil, err
		}
	}
}

// drop takes a lease off the list, if it is still the one there.
func (d *Daemon) drop(l *lease) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.leases[l.saved.owner()] == l {
		delete(d.leases, l.saved.owner())
	}
}

// forget ends a lease whose interface is gone: nobody is there to release it.
// It is called by the upkeep itself.
func (l *lease) forget(why string) {
	if !l.finish() {
		return
	}
	l.d.log("%s: upkeep ends: %s", l, why)
	l.stop()
	l.d.drop(l)
	if err := l.d.store.remove(l.saved.owner()); err != nil {
		l.d.log("%s: %v", l, err)
	}
}

// end stops the upkeep of a lease, or the wait for it, and gives back what it holds.
func (d *Daemon) end(l *lease) error {
	l.stop()
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	l.done.Wait()
	if !l.finish() {
		return nil
	}
	at, err := l.open()
	if err == nil {
		if err := l.giveBack(at); err != nil {
			d.log("%s: release: %v", l, err) // it ends by itself
		}
		at.close()
	}
	d.drop(l)
	if err := d.store.remove(l.saved.owner()); err != nil {
		return err
	}
	d.log("%s: released", l)
	return nil
}

// find is the lease of an attachment, or nil.
func (d *Daemon) find(r Request) (*lease, error) {
	network, err := networkOf(r.Stdin)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.leases[kernel.Owner{Network: network, ContainerID: r.ContainerID, IfName: r.IfName}], nil
}

// networkOf reads the one key that names a lease: the rest may have become
// anything since ADD.
func networkOf(stdin []byte) (string, error) {
	var c struct {
		Name string `json:"name"`
	}
	return c.Name, cni.Decode(stdin, &c)
}
