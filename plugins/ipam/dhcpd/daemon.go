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
	"github.com/fairlead/fairlead/kernel"
	addr "github.com/fairlead/fairlead/plugins/ipam"
)

// Options configure the daemon. They correspond to the flags of the reference daemon.
type Options struct {
	SocketPath string // path to listen on unless systemd passed a socket; "": addr.DefaultDHCPSocket
	HostPrefix string // prefix of the socket's path and of every namespace's, for a daemon in a container
	PIDFile    string // file for the process ID; "": none
	Broadcast  bool   // ask servers to answer by broadcast

	Timeout       time.Duration // longest wait for one answer; 0: 10 s
	ResendMax     time.Duration // longest pause between two messages; 0: 62 s
	ResendTimeout time.Duration // how long an ADD tries; 0: 208 s

	// Leases is the directory of stored leases. The default is named after the socket, below the root of runtime state.
	Leases string
	// Log receives messages for the administrator. It may be nil.
	Log func(line string)

	checkInterval time.Duration // how often to check that a lease's namespace exists; 0: 30 s
	inFlight      *inFlight
}

// maxConcurrent returns the limit of concurrent conversations. Each holds open a connection, a namespace and one or two
// sockets.
func maxConcurrent() int {
	var files syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files) != nil {
		return 128
	}
	return int(min(4096, max(64, files.Cur/8)))
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
	set(&o.checkInterval, 30*time.Second)
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

// Daemon gets, renews and releases leases.
type Daemon struct {
	o        Options
	store    *store
	adds     slots
	renewals slots // separate, so that ADDs on a network without a server do not delay renewals

	ctx  context.Context // cancelled to end all maintenance
	stop context.CancelFunc

	mu     sync.Mutex
	leases map[kernel.Owner]*lease
}

// New returns a daemon, which continues the leases that an earlier daemon stored.
func New(o Options) (*Daemon, error) {
	d := &Daemon{o: o.complete(), adds: make(slots, maxConcurrent()), renewals: make(slots, maxConcurrent()), leases: map[kernel.Owner]*lease{}}
	d.o.inFlight = &inFlight{make(chan struct{}, maxInFlight)}
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

// resume continues the stored leases and drops those that have ended.
func (d *Daemon) resume() error {
	all, unread, err := d.store.list()
	if err != nil {
		return err
	}
	for _, err := range unread {
		d.log("cannot read a stored lease, and does not renew it: %v", err)
	}
	for _, v := range all {
		l, err := d.load(v)
		if err == nil {
			err = l.exists()
		}
		if err != nil {
			if l != nil {
				l.stop()
			}
			d.log("%s/%s/%s: dropped the lease of an earlier daemon: %v", v.ContainerID, v.Network, v.IfName, err)
			if err := d.store.remove(v.owner()); err != nil {
				return err
			}
			continue
		}
		d.leases[v.owner()] = l
		l.maintain()
	}
	if n := len(d.leases); n > 0 {
		d.log("continuing %d stored leases", n)
	}
	return nil
}

// exists returns errGone if the container or its interface has gone. What keeps the daemon from looking may end.
func (l *lease) exists() error {
	at, err := l.open()
	switch {
	case err == nil:
		at.close()
	case errors.Is(err, errGone):
		return err
	default:
		l.d.log("%s: cannot read the interface: %v", l, err)
	}
	return nil
}

// Close stops all maintenance. It keeps the leases for the next daemon.
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
		l.saveLast()
	}
	d.store.close()
}

// slots limits concurrency.
type slots chan struct{}

// enter waits for a slot.
func (s slots) enter(ctx context.Context) (leave func(), err error) {
	select {
	case s <- struct{}{}:
		return func() { <-s }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
