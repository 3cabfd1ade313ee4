package docker

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/cni/invoke"
	"github.com/fairlead/fairlead/internal/listen"
	"github.com/fairlead/fairlead/kernel/netns"
	"github.com/fairlead/fairlead/libcni"
)

// DefaultSocket is the socket of the driver with the name fairlead. dockerd looks for drivers in its directory.
const DefaultSocket = "/run/docker/plugins/fairlead.sock"

// Options are the settings of a driver.
type Options struct {
	Socket   string        // path of the driver's socket; its name is the driver's
	Docker   string        // path of the socket of Docker's API; "": do not compare with Docker
	RunDir   string        // directory of runtime state; "": package attach's default
	LibDir   string        // directory of results and addresses
	Interval time.Duration // between two comparisons with Docker
	Grace    time.Duration // time after which an object is removed that Docker does not know
	Path     []string      // directories of plugins
	Exec     invoke.Exec   // runs plugins
	Log      func(line string)
}

// Driver is the network driver and the IPAM driver.
type Driver struct {
	o         Options
	records   *attach.Dir
	networks  folder[network]
	endpoints folder[endpoint]
	pools     folder[pool]
	reserved  folder[reservation]
	cni       *libcni.CNIConfig
	host      *netns.Handle // the namespace of dockerd, in which it looks for links
	locks     locks
	poolLock  sync.Mutex
	absent    absence         // only for reconcile
	ctx       context.Context // ends with Close
	end       context.CancelFunc
}

// New returns a driver. The caller calls Close.
func New(o Options) (*Driver, error) {
	if o.RunDir == "" {
		o.RunDir = attach.DefaultRoot
	}
	if o.LibDir == "" {
		o.LibDir = libcni.CacheDir
	}
	host, err := netns.Current()
	if err != nil {
		return nil, err
	}
	run, lib := filepath.Join(o.RunDir, "docker"), filepath.Join(o.LibDir, "fairlead", "docker")
	d := &Driver{
		o: o, records: attach.Open(o.RunDir), host: host,
		cni:       libcni.NewCNIConfigWithCacheDir(o.Path, run, o.Exec), // results end with the boot, as endpoints do
		networks:  folder[network]{filepath.Join(lib, "networks")},
		endpoints: folder[endpoint]{filepath.Join(run, "endpoints")},
		pools:     folder[pool]{filepath.Join(lib, "pools")},
		reserved:  folder[reservation]{filepath.Join(lib, "reserved")},
	}
	d.ctx, d.end = context.WithCancel(context.Background())
	d.networks.clear()
	d.endpoints.clear()
	d.pools.clear()
	d.reserved.clear()
	return d, nil
}

// Close ends the driver's work and releases its handles. Endpoints stay.
func (d *Driver) Close() {
	d.end()
	d.host.Close()
}

// hostPath returns a path of the host's namespace, which plugins open as that of a staged attachment.
func (d *Driver) hostPath() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), d.host.FD()) }

func (d *Driver) log(format string, args ...any) {
	if d.o.Log != nil {
		d.o.Log(fmt.Sprintf(format, args...))
	}
}

// Run serves dockerd until the context ends.
func Run(ctx context.Context, o Options, getenv func(string) string) error {
	d, err := New(o)
	if err != nil {
		return err
	}
	defer d.Close()
	l, err := listen.Unix(o.Socket, "Docker plugin", getenv)
	if err != nil {
		return err
	}
	d.log("listening at %s", l.Addr())
	return d.Serve(ctx, l)
}

// Serve serves a socket until the context ends. It finishes the calls that have begun.
func (d *Driver) Serve(ctx context.Context, l net.Listener) error {
	s := &http.Server{Handler: d.Handler(), ReadHeaderTimeout: time.Minute}
	end := make(chan error, 1)
	go func() { end <- s.Serve(l) }()
	d.resume()
	go d.reconcileForever(ctx)
	select {
	case err := <-end:
		return err
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	return s.Shutdown(stop)
}

// stopTime bounds the wait for calls that have begun.
const stopTime = 20 * time.Second

// locks are locks by name.
type locks struct {
	mu   sync.Mutex
	held map[string]*lock
}

type lock struct {
	sync.Mutex
	users int
}

// lock locks a name until unlock.
func (l *locks) lock(name string) (unlock func()) {
	l.mu.Lock()
	if l.held == nil {
		l.held = map[string]*lock{}
	}
	k := l.held[name]
	if k == nil {
		k = &lock{}
		l.held[name] = k
	}
	k.users++
	l.mu.Unlock()
	k.Lock()
	return func() {
		k.Unlock()
		l.mu.Lock()
		defer l.mu.Unlock()
		if k.users--; k.users == 0 {
			delete(l.held, name)
		}
	}
}
