package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/agent/address"
	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/backend"
	"github.com/fairlead/fairlead/agent/backend/bgp"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/desired"
	"github.com/fairlead/fairlead/agent/enforce"
	"github.com/fairlead/fairlead/agent/podnetworks"
	"github.com/fairlead/fairlead/agent/podstate"
	"github.com/fairlead/fairlead/agent/session"
	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/kernel/reconcile"
)

// Options configure an agent in addition to its configuration file.
type Options struct {
	Config *config.Config
	Store  store.Store
	Lib    string // directory for state that outlives a reboot: "/var/lib/cni"
	Run    string // directory for state of this boot: "/run/fairlead"
	Log    *slog.Logger

	Version string   // of this program; published for other nodes
	Program []string // command line that runs this program: "/usr/local/bin/fairlead"
}

// Timing of the loop. Kicks within quiet of each other lead to one reconciliation, at most atMost after the first.
// After an idle time of rest, the loop waits only for prompt.
const (
	quiet       = 50 * time.Millisecond
	atMost      = 100 * time.Millisecond
	rest        = time.Second
	prompt      = 5 * time.Millisecond
	resyncEvery = 60 * time.Second // interval of full resyncs
)

// Agent is the running node agent.
type Agent struct {
	o               Options
	log             *slog.Logger
	id              string // machine ID
	storeCache      *storeCache
	reconciler      reconciler
	session         *session.Session
	publish         *publisher
	manager         *address.Manager
	pods            *podnetworks.Manager // nil: pods have one network
	policy          *enforce.Enforcer    // nil: no network policy
	rules           *ruleKeeper
	status          *status
	speaker         *bgp.Node
	saving          sync.WaitGroup // until the last state of the store is on disk
	kicks           chan struct{}
	wanted          wantedNetworks
	whereabouts     chan struct{}                        // closed at the first claim of the plugin whereabouts
	mtuUnwritten    bool                                 // the plugins' files lack the current MTU
	lastReady       string                               // what logReady logged last
	lastUnreachable string                               // what logUnreachable logged last
	lastNetworks    string                               // what logNetworks logged last
	lastInvalid     string                               // what logInvalid logged last
	lease           atomic.Pointer[cluster.FlannelLease] // lease to publish for flannel's nodes
}

// owner returns the route protocol, alias prefix and nft table that mark the agent's objects.
func owner() reconcile.Owner {
	return reconcile.Owner{Protocol: backend.Protocol, Alias: backend.LinkAlias(""), Table: backend.Table}
}

// Run runs the agent until the context ends. It leaves the kernel objects in place, so containers keep working while no
// agent runs.
func Run(ctx context.Context, o Options) error {
	unlock, err := lockHost(o.Run)
	if err != nil {
		return err
	}
	defer unlock()
	k, err := newKernelReconciler(o.Config)
	if err != nil {
		return err
	}
	defer k.close()
	a, err := newAgent(o, k)
	if err != nil {
		return err
	}
	if a.policy == nil { // it may have been in force before
		if existed, err := enforce.Remove(ctx); err != nil {
			return err
		} else if existed {
			o.Log.Info("network policy is not enabled any more: removed its rules")
		}
	}
	return a.run(ctx)
}

// run starts the agent's parts and runs the loop.
func (a *Agent) run(ctx context.Context) error {
	defer a.speaker.Stop()
	ctx, stop := context.WithCancelCause(ctx)
	defer a.saving.Wait()
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

func newAgent(o Options, k reconciler) (*Agent, error) {
	id, err := machineID(filepath.Join(o.Lib, "fairlead"))
	if err != nil {
		return nil, err
	}
	instance, err := instanceID(o.Run)
	if err != nil {
		return nil, err
	}
	a := &Agent{o: o, log: o.Log, id: id, reconciler: k, lastReady: nothingLogged, kicks: make(chan struct{}, 1), whereabouts: make(chan struct{}), status: newStatus(o.Config.Node), rules: newRuleKeeper(attach.Open(o.Run), o.Log), speaker: &bgp.Node{Log: o.Log.With("part", "bgp")}}
	local.RemoveUnfinished(local.Open(o.Lib, o.Run).Root()) // plugins write only the cool-down there, and may lose it
	a.storeCache = newStoreCache(filepath.Join(o.Lib, "fairlead", "snapshot"), a.kick, o.Log)
	a.session = session.New(o.Store, session.Identity{Node: o.Config.Node, Machine: id, Instance: instance}, o.Log)
	am := address.Options{
		Store: a.session.Store(), Session: a.session.Revision, Node: o.Config.Node, Machine: id, Dir: local.Open(o.Lib, o.Run), Grace: time.Duration(o.Config.Grace), Log: o.Log, MTU: a.status.mtuOf,
		SubnetFile: o.Config.Flannel.SubnetFile, Whereabouts: sync.OnceFunc(func() { close(a.whereabouts) }),
	}
	if o.Config.FlannelInEtcd() {
		am.Flannel = a.lease.Load
	}
	a.manager = address.NewManager(am)
	if o.Config.PodNetworks.Enabled {
		client, err := o.Config.KubernetesClient()
		if err != nil {
			return nil, err
		}
		a.pods = podnetworks.NewManager(podnetworks.Options{Client: client, Dir: podstate.Open(am.Dir), Kubelet: o.Config.PodNetworks.Kubelet, Log: o.Log})
	}
	if o.Config.Policy.Enabled {
		po := enforce.Options{Directory: o.Config.Policy.Directory, Node: o.Config.Node, Attachments: podstate.Open(am.Dir), Records: attach.Open(o.Run), Log: o.Log.With("part", "policy")}
		switch {
		case po.Directory != "":
		case o.Config.Store.Kubernetes.Kubeconfig == "":
			po.Store = o.Store
		default:
			if po.Config, err = o.Config.KubernetesConfig(); err != nil {
				return nil, err
			}
		}
		a.policy = enforce.New(po)
		a.tellPolicy() // from the saved copy of the store: the first rules know the same networks as those in the kernel
	}
	a.publish = &publisher{store: a.session.Store(), session: a.session, conf: o.Config, storeCache: a.storeCache, log: o.Log, status: a.status, wake: make(chan struct{}, 1), conditions: o.Store, wanted: &a.wanted}
	if a.policy != nil {
		a.publish.policy.now = a.policy.Problem
	}
	return a, nil
}

// start starts everything that can trigger a reconciliation.
func (a *Agent) start(ctx context.Context, stop context.CancelCauseFunc) error {
	if err := a.session.Start(ctx); err != nil {
		return err
	}
	if err := a.serveSocket(ctx); err != nil {
		return err
	}
	go a.follow(ctx)
	a.saving.Go(func() { a.storeCache.keepOnDisk(ctx) })
	a.kick() // reconcile from the cache on disk, before the store answers
	go a.session.Run(ctx)
	go a.publish.run(ctx)
	go a.rules.run(ctx)
	go func() { _ = a.manager.Run(ctx) }()
	if a.pods != nil {
		go a.pods.Run(ctx)
	}
	if a.policy != nil {
		go func() {
			if err := a.policy.Run(ctx); ctx.Err() == nil {
				stop(err)
			}
		}()
	}
	if store.KeepsEndpoints(a.o.Store) {
		go (&endpoints{
			store: a.session.Store(), node: a.o.Config.Node, dir: attach.Open(a.o.Run), policed: podstate.Open(a.manager.Dir),
			storeCache: a.storeCache, log: a.log,
		}).run(ctx)
	}
	if a.o.Config.Listen != "" {
		if err := a.serve(ctx, a.o.Config.Listen); err != nil {
			return err
		}
	}
	go func() {
		if err := a.reconciler.run(ctx); ctx.Err() == nil {
			stop(fmt.Errorf("listen to the kernel: %w", err))
		}
	}()
	return nil
}

// kick requests a reconciliation soon.
func (a *Agent) kick() {
	select {
	case a.kicks <- struct{}{}:
	default:
	}
}

// loop reconciles after kicks and kernel events, and does a full resync once a minute.
func (a *Agent) loop(ctx context.Context) {
	full := time.NewTicker(resyncEvery)
	defer full.Stop()
	again := time.NewTimer(0) // one timer: each reconciliation sets it again if it needs a retry
	again.Stop()
	defer again.Stop()
	p := newDebouncer()
	for {
		a.status.loopRan()
		select {
		case <-ctx.Done():
			return
		case <-a.kicks:
			p.kick()
		case <-a.speaker.Changed():
			p.kick()
		case h := <-a.reconciler.events():
			a.rules.notice(h)
			if a.reconciler.needsResync(h) {
				p.kick()
			}
		case <-full.C:
			a.reconciler.invalidate()
			p.kick()
		case <-again.C:
			p.kick()
		case <-p.due():
			p.done()
			again.Stop()
			if after := a.reconcile(ctx); after > 0 {
				again.Reset(after)
			}
			a.logReady()
			a.logUnreachable()
			a.logNetworks()
		}
	}
}

// reconcile makes the kernel match the store. It returns when to try again; 0 means no retry is needed.
func (a *Agent) reconcile(ctx context.Context) (again time.Duration) {
	began := time.Now()
	self, host, again, err := a.describeSelf()
	if err != nil {
		a.tellPolicy()
		return a.status.failed(err)
	}
	problems, retry := a.runBGP(ctx, self, &host)
	again = sooner(again, retry)
	synced := a.storeCache.synced()
	w, known := a.compile(self, host)
	if !known {
		return again // the store was never read and there is no cache
	}
	a.publish.setNode(self, synced)
	lost, check := a.lostSessions(&w)
	again = sooner(again, check)
	w.Problems = slices.Concat(w.Problems, problems, lost)
	var unwritten error
	if a.status.setMTU(w.MTU) || a.mtuUnwritten {
		defer a.manager.Wake() // flannel's file contains the MTU, too
		unwritten = a.manager.WriteMTU()
		a.mtuUnwritten = unwritten != nil
	}
	rep := a.reconciler.reconcile(&w, a.storeCache.synced())
	if unwritten != nil { // as on a full disk, on which routes must still be right
		rep.Errors = append(rep.Errors, fmt.Errorf("write the MTU for the plugins: %w", unwritten))
	}
	w.Problems = slices.Concat(w.Problems, refusedRoutes(rep), divertedRoutes(&w, rep))
	a.logReconcile(ctx, &w, rep, began)
	a.logInvalid(&w)
	again = sooner(again, a.status.recordReconcile(&w, rep, began))
	if _, failed := failures(rep.Errors); !failed && w.MTU[cluster.DefaultNetwork] != 0 && w.NoBlocks == nil {
		if err := writeCNIConfig(a.o.Config, local.Open(a.o.Lib, a.o.Run).Root()); err != nil {
			return a.status.failed(err)
		}
	}
	if a.o.Config.Store.Kubernetes.Kubeconfig != "" {
		a.status.recordList(earlierList(a.o.Config.CNI.File))
	}
	return again
}

// describeSelf returns this node's document for the store, the host's state, and the time after which to reconcile
// again (0: none).
func (a *Agent) describeSelf() (self *cluster.Node, h desired.Host, again time.Duration, err error) {
	if h, err = a.reconciler.host(a.knownAddresses()); err != nil {
		return nil, h, 0, fmt.Errorf("find the link to other nodes: %w", err)
	}
	self = &cluster.Node{Name: a.o.Config.Node, ID: a.id, Addresses: h.Addresses, Version: a.o.Version}
	again = a.keys(self, &h)
	a.setFlannel(self, &h)
	h.Wanted = a.wanted.names()
	return self, h, again, nil
}

// knownAddresses returns the addresses of this host that the cluster knows from elsewhere (in Kubernetes, from the
// kubelet), and those that this machine published.
func (a *Agent) knownAddresses() (elsewhere, published []netip.Addr) {
	a.storeCache.read(func(s *cluster.Snapshot) {
		n := s.Nodes[a.o.Config.Node]
		if n == nil {
			return
		}
		elsewhere = n.HostAddresses
		if n.ID == a.id {
			published = addrsOf(n.Addresses)
		}
	})
	return elsewhere, published
}

// compile computes the desired state. It returns false if neither the store nor the cache was ever read.
func (a *Agent) compile(self *cluster.Node, h desired.Host) (w desired.State, known bool) {
	known = a.storeCache.read(func(s *cluster.Snapshot) {
		if h.Flannel && !a.o.Config.FlannelInEtcd() {
			setFlannelLease(s, self)
		}
		w = desired.Compile(s, self, h)
		if len(h.Wanted) > 0 {
			for network := range desired.Held(s, self.Name) {
				a.wanted.remove(network)
			}
		}
		a.setPolicyNetworks(s, w.Blocks)
		a.publish.networks.set(s, &w, a.storeCache.revision)
		if s.Networks[cluster.DefaultNetwork] == nil && a.o.Config.Network != nil {
			w.NoBlocks = errors.New("the store does not have the default network yet") // the publisher is about to write it
		}
		if n := s.Nodes[self.Name]; n != nil && n.ID == self.ID {
			a.status.markPublished()
		}
	})
	if w.NeedsVNI {
		a.publish.kick()
	}
	return w, known
}

// tellPolicy gives network policy the cluster's networks and the addresses that nodes have in them, while this node's own
// document is not known.
func (a *Agent) tellPolicy() {
	if a.policy == nil {
		return
	}
	a.storeCache.read(func(s *cluster.Snapshot) {
		self := s.Nodes[a.o.Config.Node]
		if self == nil {
			self = &cluster.Node{Name: a.o.Config.Node}
		}
		valid, _ := desired.Valid(s, self)
		a.setPolicyNetworks(s, valid.Blocks)
	})
}

func (a *Agent) setPolicyNetworks(s *cluster.Snapshot, blocks map[string]*cluster.Block) {
	if a.policy != nil {
		a.policy.SetNetworks(enforce.NetworksOf(s))
		a.policy.SetPodAddresses(enforce.PodAddressesOf(blocks))
	}
}

// sooner returns the shorter of two durations, where 0 means never.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
