package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/agent/address"
	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/backend"
	"github.com/fairlead/fairlead/agent/backend/bgp"
	"github.com/fairlead/fairlead/agent/backend/wgd"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/kernel/reconcile"
)

// Options are what an agent needs besides its configuration.
type Options struct {
	Config *config.Config
	Store  store.Store
	Lib    string // where state lies that outlives a reboot: "/var/lib/cni"
	Run    string // where state of this boot lies: "/run/fairlead"
	Log    *slog.Logger

	Version string   // of this program, for other nodes to see
	Program []string // what runs this program: "/usr/local/bin/fairlead"
}

// The loop's times. Changes that come within quiet of each other are looked at
// together, but none waits for longer than atMost. One that comes after a rest waits
// for what belongs to it only.
const (
	quiet    = 50 * time.Millisecond
	atMost   = 100 * time.Millisecond
	rest     = time.Second
	prompt   = 5 * time.Millisecond
	fullLook = 60 * time.Second // all is listed, whatever was told
)

// Agent is a node's agent at work.
type Agent struct {
	o        Options
	log      *slog.Logger
	id       string // this machine's
	view     *view
	keeper   keeper
	publish  *publisher
	manager  *address.Manager
	status   *status
	speaker  *bgp.Node
	kicks    chan struct{}
	said     string                               // of whether this node is ready, by sayReady
	saidLeft string                               // of what is not heeded, by sayLeft
	lease    atomic.Pointer[cluster.FlannelLease] // what flannel's nodes are told of this one
}

// Protocol, alias and table are those by which what the agent made is known.
func owner() reconcile.Owner {
	return reconcile.Owner{Protocol: backend.Protocol, Alias: backend.Mark(""), Table: backend.Table}
}

// Run is the agent, until the context ends. What it made in the kernel stays:
// containers go on while no agent runs.
func Run(ctx context.Context, o Options) error {
	unlock, err := alone(o.Run)
	if err != nil {
		return err
	}
	defer unlock()
	k, err := newKeeper(o.Config)
	if err != nil {
		return err
	}
	defer k.close()
	a, err := newAgent(o, k)
	if err != nil {
		return err
	}
	return a.run(ctx)
}

// run is the agent, with its hold on the kernel.
func (a *Agent) run(ctx context.Context) error {
	defer a.speaker.Stop()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	if err := a.start(ctx, stop); err != nil {
		return err
	}
	a.loop(ctx)
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func newAgent(o Options, k keeper) (*Agent, error) {
	id, err := machineID(filepath.Join(o.Lib, "fairlead"))
	if err != nil {
		return nil, err
	}
	a := &Agent{o: o, log: o.Log, id: id, keeper: k, said: saidNothing, kicks: make(chan struct{}, 1), status: newStatus(o.Config.Node), speaker: &bgp.Node{Log: o.Log.With("part", "bgp")}}
	a.view = newView(filepath.Join(o.Lib, "fairlead", "snapshot"), a.kick, o.Log)
	am := address.Options{
		Store: o.Store, Node: o.Config.Node, Dir: local.Open(o.Lib, o.Run), Grace: time.Duration(o.Config.Grace), Log: o.Log, MTU: a.status.mtuOf,
		SubnetFile: o.Config.Flannel.SubnetFile,
	}
	if o.Config.Flannel.Prefix != "" {
		am.Flannel = a.lease.Load
	}
	a.manager = address.NewManager(am)
	a.publish = &publisher{store: o.Store, conf: o.Config, id: id, view: a.view, log: o.Log, status: a.status, wake: make(chan struct{}, 1)}
	return a, nil
}

// start begins what tells the loop to look.
func (a *Agent) start(ctx context.Context, stop context.CancelCauseFunc) error {
	if err := a.publish.claimName(ctx); err != nil {
		return err
	}
	if err := a.answer(ctx); err != nil {
		return err
	}
	followed := cluster.Followed()
	if a.o.Config.Flannel.Prefix != "" {
		followed = append(followed, cluster.FlannelPrefix)
	}
	go func() { _ = store.FollowAll(ctx, a.o.Store, followed, store.Followers{a.view, a.manager, a.status}) }()
	go a.view.keepOnDisk(ctx)
	a.kick() // what is known of an earlier life counts
	go a.publish.run(ctx)
	go func() { _ = a.manager.Run(ctx) }()
	go (&endpoints{store: a.o.Store, node: a.o.Config.Node, dir: attach.Open(a.o.Run), view: a.view}).run(ctx)
	if a.o.Config.Listen != "" {
		if err := a.serve(ctx, a.o.Config.Listen); err != nil {
			return err
		}
	}
	go func() {
		if err := a.keeper.run(ctx); ctx.Err() == nil {
			stop(fmt.Errorf("listen to the kernel: %w", err))
		}
	}()
	return nil
}

// kick has the loop look soon.
func (a *Agent) kick() {
	select {
	case a.kicks <- struct{}{}:
	default:
	}
}

// loop looks when there is reason to, and once a minute at everything.
func (a *Agent) loop(ctx context.Context) {
	full := time.NewTicker(fullLook)
	defer full.Stop()
	again := time.NewTimer(0) // one: each look says anew when it wants another
	again.Stop()
	defer again.Stop()
	p := newPace()
	for {
		a.status.turn()
		select {
		case <-ctx.Done():
			return
		case <-a.kicks:
			p.kick()
		case <-a.speaker.Changed():
			p.kick()
		case h := <-a.keeper.told():
			if a.keeper.contradicts(h) {
				p.kick()
			}
		case <-full.C:
			a.keeper.forget()
			p.kick()
		case <-again.C:
			p.kick()
		case <-p.due():
			p.done()
			again.Stop()
			if after := a.look(ctx); after > 0 {
				again.Reset(after)
			}
			a.sayReady()
		}
	}
}

// look makes the kernel what the store says, and tells when to try again what failed.
func (a *Agent) look(ctx context.Context) (again time.Duration) {
	began := time.Now()
	self, host, again, err := a.here()
	if err != nil {
		return a.status.failed(err)
	}
	a.publish.wants(self)
	problems := a.speak(ctx, self, &host)
	w, known := a.compile(self, host)
	if !known {
		return again // the store was never seen, and nothing is known of it
	}
	w.Problems = append(w.Problems, problems...)
	rep := a.keeper.reconcile(&w, a.view.isFresh())
	a.say(ctx, &w, rep, began)
	a.sayLeft(&w)
	if a.status.mtuOf(cluster.DefaultNetwork) != w.MTU[cluster.DefaultNetwork] {
		defer a.manager.Wake() // plugins' files have it
	}
	again = sooner(again, a.status.looked(&w, rep, began))
	if _, failed := failures(rep.Errors); !failed && w.MTU[cluster.DefaultNetwork] != 0 && !w.bare {
		if err := writeList(a.o.Config.CNI); err != nil {
			return a.status.failed(err)
		}
	}
	return again
}

// here is this node as others are to see it, and its host as the kernel says, and when
// to look again whatever happens.
func (a *Agent) here() (self *cluster.Node, h Host, again time.Duration, err error) {
	if h, err = a.keeper.host(); err != nil {
		return nil, h, 0, fmt.Errorf("find the link to other nodes: %w", err)
	}
	self = &cluster.Node{Name: a.o.Config.Node, ID: a.id, Addresses: h.Addresses, Version: a.o.Version}
	if again, err = a.keys(self, &h); err != nil {
		return nil, h, 0, err
	}
	a.beside(self, &h)
	return self, h, again, nil
}

// compile works out what is wanted; false if nothing is known of the store.
func (a *Agent) compile(self *cluster.Node, h Host) (w Wanted, known bool) {
	known = a.view.read(func(s *cluster.Snapshot) {
		w = Compile(s, self, h)
		if s.Networks[cluster.DefaultNetwork] == nil && a.o.Config.Network != nil {
			w.bare = true // it is about to be written
		}
		if n := s.Nodes[self.Name]; n != nil && n.ID == self.ID {
			a.status.wasTold()
		}
	})
	if w.needsVNI {
		a.publish.kick()
	}
	return w, known
}

// sooner is the shorter of two times, of which 0 is never.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// keys gives the node the WireGuard key that it publishes, if a network asks for
// one, and tells when to look whether it is to be turned.
func (a *Agent) keys(self *cluster.Node, h *Host) (again time.Duration, err error) {
	var conf *cluster.Backend
	a.view.read(func(s *cluster.Snapshot) {
		for _, n := range sharedNetworks(s) {
			for _, b := range n.Backends {
				if b.Type == cluster.WireGuard {
					conf = &b
				}
			}
		}
	})
	if conf == nil {
		return 0, nil
	}
	h.KeyFile = filepath.Join(a.o.Lib, "fairlead", "wireguard.key")
	h.Socket = filepath.Join(a.o.Run, "wireguard.sock")
	h.Program = append(slices.Clone(a.o.Program), wgd.Command)
	self.WireGuard, self.Previous, err = backend.Keys{File: h.KeyFile}.Turn(time.Now(), time.Duration(conf.Rotate)*time.Hour)
	if conf.Rotate > 0 || self.Previous != "" {
		again = backend.Grace / 2
	}
	return again, err
}
