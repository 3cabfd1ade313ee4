// Package enforce keeps policy in force on a node: it follows the Kubernetes API, compiles policies by package policy,
// and programs the kernel by package nftable.
//
// What is in force stays in force while no agent runs and while the API is away. Nothing changes before the API's
// objects are complete.
package enforce

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/agent/podstate"
	"github.com/fairlead/fairlead/agent/policy"
	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/kernel/nftable"
	"github.com/fairlead/fairlead/kernel/reconcile"
)

// Options configure an Enforcer.
type Options struct {
	// The policies are in the Kubernetes API, or in the files of a directory, or in the agents' store. Without
	// Kubernetes, they are for containers, of which the host's own are in Attachments.
	Config    *rest.Config
	Directory string
	Store     store.Store

	Node        string       // name of this node
	Attachments podstate.Dir // of this node
	Records     *attach.Dir  // of this node's attachments, which remain until their interfaces are gone; nil: none
	Log         *slog.Logger
}

// Enforcer keeps policy in force.
type Enforcer struct {
	o         Options
	kinds     []kind
	kick, cut chan struct{} // for the rules, and for the connections that exist
	hurry     chan struct{} // an ADD waits for the rules

	reading    sync.Mutex                          // of the attachments' files, so that the last one read counts
	containers containers                          // of this host, without Kubernetes; for the holder of reading
	disturbed  atomic.Bool                         // somebody else may have changed the kernel's table
	host       *policy.Node                        // this host, without Kubernetes; only for readHost
	claimed    map[podstate.Key]*podstate.Endpoint // that have claims; for the holder of reading
	ending     map[podstate.Key]bool               // see isEnding; for the holder of reading

	needed chan struct{} // closed when there is a policy: the rest of the world matters from then on

	mu           sync.Mutex
	active       bool // needed is closed
	compiler     *policy.Compiler
	decide       *policy.Evaluator        // of the compiler's table; nil after a change
	missing      map[string]bool          // resources that are not complete yet
	inForce      bool                     // the kernel's table was up to date once
	unwritten    bool                     // the compiler's world has changes that the kernel does not have
	rulesChanged bool                     // after the last request for a pass of the cutter
	waiting      map[chan struct{}]string // closed when policy is in force for a claim, the value
	failure      error                    // of the last write
	unreadable   string                   // why some policies cannot be read
	unread       string                   // why some attachments cannot be read
	refused      map[string]string        // why the API refuses to list or watch a resource, by resource and verb
	changed      time.Time                // of the last write that changed something
	events       []time.Time              // of changes that the kernel does not have yet
	direct       map[podstate.Key]bool    // attachments to which policy does not apply

	metrics  *metrics
	statuses *statuses // nil: it writes none

	isolated // see there
}

// New returns an Enforcer. It does not connect.
func New(o Options) *Enforcer {
	if o.Config == nil {
		e := newEnforcer(o, nil)
		if o.Store != nil {
			e.missing[storeContent] = true
		} else {
			e.missing[policyFiles] = true
		}
		e.activate()
		return e
	}
	e := newEnforcer(o, kinds())
	for _, k := range e.kinds {
		if k.isPolicy {
			e.missing[k.resource+fromAPI] = true
		}
	}
	e.statuses = &statuses{e: e, nodes: map[string]string{}, policies: map[string]clusterPolicy{}}
	return e
}

func newEnforcer(o Options, kinds []kind) *Enforcer {
	e := &Enforcer{o: o, kinds: kinds, kick: make(chan struct{}, 1), cut: make(chan struct{}, 1), hurry: make(chan struct{}, 1), needed: make(chan struct{}), compiler: policy.New(o.Node), missing: map[string]bool{}, waiting: map[chan struct{}]string{}, metrics: newMetrics()}
	e.networks, e.appeared, e.direct, e.containers = map[string]*Enforcer{}, make(chan struct{}, 1), map[podstate.Key]bool{}, containers{}
	e.claimed, e.ending = map[podstate.Key]*podstate.Endpoint{}, map[podstate.Key]bool{}
	e.refused = map[string]string{}
	return e
}

// activate begins to follow what policies depend on. Until there is a policy, all is open, and an agent follows nothing
// but policies. Nothing changes in the kernel before the rest is complete.
func (e *Enforcer) activate() {
	if e.active {
		return
	}
	e.active = true
	e.missing[attachmentFiles] = true
	for _, k := range e.kinds {
		if !k.isPolicy {
			e.missing[k.resource+fromAPI] = true
		}
	}
	close(e.needed)
}

const (
	together  = 2 * time.Millisecond // changes within this time are one transaction, unless an ADD waits
	fullCheck = 10 * time.Minute     // interval of complete comparisons with the kernel, which reports changes, too
	longRetry = 5 * time.Second      // longest pause after a failure
)

// Run keeps policy in force until the context ends. Then it stays in force.
func (e *Enforcer) Run(ctx context.Context) error {
	s, err := openSockets()
	if err != nil {
		return fmt.Errorf("network policy: %w", err)
	}
	defer s.close()
	var all sync.WaitGroup
	defer all.Wait()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	if err := e.metrics.begin(); err != nil {
		return fmt.Errorf("network policy: %w", err)
	}
	defer e.metrics.end()
	e.startNetworks(func(n *Enforcer) { all.Go(func() { n.runIsolated(ctx) }) })
	defer e.startNetworks(nil)
	all.Go(func() { e.followAttachments(ctx) })
	switch {
	case e.o.Config != nil:
	case e.o.Store != nil:
		all.Go(func() { e.followStore(ctx) })
	default:
		d := &directory{e: e, have: &policy.World{}}
		all.Go(func() { d.run(ctx) })
	}
	if err := e.tryRules(ctx, s.rules); err != nil {
		return fmt.Errorf("network policy: %w", err)
	}
	e.follow(ctx, &all, stop)
	if e.statuses != nil {
		all.Go(func() { e.statuses.run(ctx) })
	}
	return e.program(ctx, s)
}

// program writes what the compiler says to the kernel until the context ends.
func (e *Enforcer) program(ctx context.Context, s *sockets) error {
	var all sync.WaitGroup
	defer all.Wait()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	c := &cutter{e: e, conntrack: s.conntrack, p: s.cuts, kick: e.cut}
	c.disturbed.Store(true)
	all.Go(func() { c.run(ctx) })
	all.Go(func() {
		if err := s.monitor.Run(ctx, func(list []reconcile.Event) { e.watched(list, s, c) }); ctx.Err() == nil {
			stop(fmt.Errorf("network policy: listen to the kernel: %w", err))
		}
	})
	e.loop(ctx, s.rules)
	return context.Cause(ctx)
}

// follow delivers the API's objects until the context ends.
func (e *Enforcer) follow(ctx context.Context, all *sync.WaitGroup, failed func(error)) {
	for _, k := range e.kinds {
		f := &follower{kind: k, e: e, names: map[string]bool{}}
		all.Go(func() {
			if !k.isPolicy && !e.waitNeeded(ctx) {
				return
			}
			if err := f.run(ctx, e.o.Config); err != nil {
				failed(err)
			}
		})
	}
}

// waitNeeded waits until there is a policy. It returns false if the context ends before.
func (e *Enforcer) waitNeeded(ctx context.Context) bool {
	select {
	case <-e.needed:
		return true
	case <-ctx.Done():
		return false
	}
}

// tryRules leaves out the rules that the kernel lacks and policy can do without.
func (e *Enforcer) tryRules(ctx context.Context, p *nftable.Programmer) error {
	for _, x := range []struct {
		rule, problem string
		without       func(*policy.Compiler)
	}{
		{policy.RuleThatLogs(), "\"fairlead policy log\" does not work on this node: its kernel lacks nft_log, nft_limit or nfnetlink_log", (*policy.Compiler).WithoutLog},
		{policy.RuleForIPVS(), "policy does not apply to packets of IPVS, with which kube-proxy may implement Services: the kernel lacks nft_fib_inet", (*policy.Compiler).WithoutIPVS},
	} {
		can, err := p.Accepts(ctx, policy.TableFamily, policy.TableName+"-try", x.rule)
		if err != nil {
			return err
		}
		if !can {
			e.o.Log.Warn(x.problem)
			e.update(x.without)
		}
	}
	return nil
}

// watched requests a complete comparison of a table that somebody else changed.
func (e *Enforcer) watched(list []reconcile.Event, s *sockets, c *cutter) {
	for _, ev := range list {
		if ev.ChangesTable(policy.TableName, s.rules.PortID()) {
			e.disturbed.Store(true)
			wake(e.kick)
		}
		if ev.ChangesTable(policy.CutTableName, s.cuts.PortID()) {
			c.disturbed.Store(true)
			wake(e.cut)
		}
	}
}

// update changes the compiler's world.
func (e *Enforcer) update(change func(*policy.Compiler)) {
	began := time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.compiler.Batch(func() { change(e.compiler) })
	if e.compiler.HasPolicies() {
		e.activate()
	}
	e.decide, e.unwritten = nil, e.unwritten || e.compiler.Pending()
	if e.inForce && e.compiler.Pending() && len(e.events) < maxEvents {
		e.events = append(e.events, began)
	}
	e.updateNetworks(change)
	wake(e.kick)
}

// wake makes a loop go on, once.
func wake(kick chan<- struct{}) {
	select {
	case kick <- struct{}{}:
	default:
	}
}

// synced notes that all objects of a resource are known.
func (e *Enforcer) synced(resource string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.missing, resource)
	for _, n := range e.networks {
		n.synced(resource)
	}
	wake(e.kick)
}

// loop writes changes to the kernel, and compares everything now and then.
func (e *Enforcer) loop(ctx context.Context, p *nftable.Programmer) {
	full := time.NewTicker(fullCheck)
	defer full.Stop()
	for failures := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-full.C:
			e.disturbed.Store(true)
		case <-e.kick:
			select {
			case <-e.hurry:
			case <-time.After(together):
			}
		}
		err := e.write(ctx, p)
		if err == nil {
			failures = 0
			continue
		}
		if ctx.Err() != nil {
			return
		}
		e.o.Log.Error("network policy is not up to date", "error", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(min(100*time.Millisecond<<min(failures, 10), longRetry)):
		}
		failures++
		wake(e.kick)
	}
}

// write brings the kernel's table up to date.
func (e *Enforcer) write(ctx context.Context, p *nftable.Programmer) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.missing) > 0 || !e.hasNamespace() {
		return nil
	}
	table, changes := e.compiler.Table()
	e.rulesChanged = e.rulesChanged || !changes.Empty()
	found, err := p.Apply(ctx, table, changes)
	if err == nil && e.disturbed.Swap(false) && e.inForce {
		var more []string
		more, err = p.Sync(ctx, table)
		found = append(found, more...)
	}
	e.rulesChanged = e.rulesChanged || len(found) > 0
	again := e.failure != nil
	if e.failure = err; err != nil {
		e.metrics.failures.Inc()
		return err
	}
	if !e.inForce {
		e.o.Log.Info("network policy is in force", "endpoints", e.compiler.LocalEndpoints(), "sets", len(table.Sets), "chains", len(table.Chains))
	} else if len(found) > 0 && !again { // after a failure, Apply finds its own changes, too
		e.o.Log.Warn("repairing rules of network policy that other software changed", "found", found)
		e.metrics.repairs.Inc()
	}
	if e.rulesChanged {
		e.rulesChanged = false
		wake(e.cut)
	}
	e.inForce, e.unwritten = true, false
	e.written(len(found) > 0 || !changes.Empty())
	return nil
}

// written notes that the kernel has all changes.
func (e *Enforcer) written(changed bool) {
	for ready, claim := range e.waiting {
		if e.missingFor(claim) == "" {
			close(ready)
			delete(e.waiting, ready)
		}
	}
	if changed {
		e.changed = time.Now()
	}
	for _, began := range e.events {
		e.metrics.delay.Observe(time.Since(began).Seconds())
	}
	e.events = e.events[:0]
}

// Problem says why policy is not in force on this node, or returns "".
func (e *Enforcer) Problem() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch missing := slices.Sorted(maps.Keys(e.missing)); {
	case e.unreadable != "":
		return "the agent cannot read all policies: " + e.unreadable
	case e.unread != "":
		return "the agent cannot read all attachments of this node: " + e.unread
	case len(e.refused) > 0:
		return "the agent cannot follow the Kubernetes API: " + e.refusals()
	case len(missing) > 0:
		return "the agent has not received since it started: " + strings.Join(missing, ", ")
	case e.failure != nil:
		return "the kernel did not accept the rules: " + e.failure.Error()
	case !e.inForce && e.hasNamespace():
		return "the rules are not in the kernel yet"
	}
	return e.problemOfNetworks()
}
