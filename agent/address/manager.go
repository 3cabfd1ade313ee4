package address

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/source"
	"github.com/fairlead/fairlead/agent/store"
)

// Options configure a Manager.
type Options struct {
	Store store.Store
	Node  string // this node's name

	// Machine is this machine's ID. Another machine with the node's name had the node's blocks and addresses that have
	// another ID; they are released after the grace period. "" accepts all.
	Machine string

	// Session returns the revision of this agent's session with the store, or an error if it has none. Without a session
	// the manager writes neither to the store nor to local files. nil: the caller is the only writer.
	Session func() (int64, error)

	Dir local.Dir

	// Grace is the time for which a node must be continuously missing from the store before its blocks and addresses
	// are released. 0 means 5 minutes.
	Grace time.Duration

	// SubnetFile is flannel's file with this host's subnet, written for the flannel plugin. If it is set, host-local
	// allocates from one block of each family of the default network. "" writes no file.
	SubnetFile string

	// Flannel returns this node's flannel lease without its subnets, or nil while it is not known. A nil function means
	// that the cluster has no flannel nodes.
	Flannel func() *cluster.FlannelLease

	// Whereabouts is called before each claim of the plugin whereabouts. nil: nobody wants to know.
	Whereabouts func()

	Log *slog.Logger             // nil: no logging
	MTU func(network string) int // MTU of the network's container links in bytes; nil: unknown
}

// Manager manages this node's addresses. It is a source.Follower for everything below cluster.Followed; see
// source.Follow.
type Manager struct {
	Options

	mu           sync.Mutex
	state        *storeState
	ready        bool // synced with the store at least once
	recheck      bool // compare held blocks and addresses with the store
	away         error
	dirty        chan struct{}               // signals that this node's files may be outdated
	joined       map[string]bool             // networks that something on this node asked for
	absent       map[string]time.Time        // missing nodes that have blocks or addresses, since when
	leaving      map[string]time.Time        // our blocks that are no longer in our file, since when
	unheld       map[string]time.Time        // our addresses that no container holds, since when
	lost         map[string]*cluster.Address // what the store had before a restore or a deletion, until it is claimed again
	problems     map[string]string
	unusedVNIs   unusedVNIs
	session      int64                 // the session since which the above times count
	flannelBlock map[bool]netip.Prefix // block for the flannel plugin, by family (true: IPv6)
	formerBlocks []netip.Prefix        // content of SubnetFile at start

	claims    chan *claim
	last      map[string]*claim // last claim that received each key and may not have received the answer
	unclaimed map[*claim]bool   // claims whose addresses reached nobody
	unwanted  chan struct{}     // signals a new entry in unclaimed

	lostBlocks map[string]lostBlock // by key; guarded by blocks

	files  sync.Mutex // serializes writing this node's files
	blocks sync.Mutex // serializes claiming blocks
	turn   sync.Mutex // serializes journal reads, assignments and releases
}

const (
	defaultGrace   = 5 * time.Minute
	reconcileEvery = time.Second            // interval of reconcile
	journalEvery   = 200 * time.Millisecond // interval of readJournal
	reclaimEvery   = 5 * time.Second
)

// NewManager returns a Manager. Call Run to start it.
func NewManager(o Options) *Manager {
	if o.Grace == 0 {
		o.Grace = defaultGrace
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Session == nil {
		o.Session = func() (int64, error) { return 1, nil }
	}
	if o.MTU == nil {
		o.MTU = func(string) int { return 0 }
	}
	return &Manager{
		Options: o, state: newStoreState(), dirty: make(chan struct{}, 1), joined: map[string]bool{},
		absent: map[string]time.Time{}, leaving: map[string]time.Time{}, unheld: map[string]time.Time{}, problems: map[string]string{},
		flannelBlock: map[bool]netip.Prefix{}, formerBlocks: readSubnetFile(o.SubnetFile),
		claims: make(chan *claim, 1024), last: map[string]*claim{}, unclaimed: map[*claim]bool{}, unwanted: make(chan struct{}, 1),
		lost: map[string]*cluster.Address{}, lostBlocks: map[string]lostBlock{},
	}
}

// Run manages the addresses until the context ends.
func (m *Manager) Run(ctx context.Context) error {
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { m.serveClaims(ctx) })
	all.Go(func() { m.every(ctx, journalEvery, "read the journal", m.readJournal) })
	all.Go(func() { m.every(ctx, reclaimEvery, "reclaim unused addresses and blocks", m.reclaim) })
	tick := time.NewTicker(reconcileEvery)
	defer tick.Stop()
	for {
		err := m.reconcile(ctx)
		m.recordProblem("manage this node's addresses", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		case <-m.dirty:
		}
	}
}

func (m *Manager) every(ctx context.Context, pause time.Duration, what string, do func(context.Context) error) {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		m.recordProblem(what, do(ctx))
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// recordProblem records and logs an error, once per message. A nil error clears it.
func (m *Manager) recordProblem(what string, err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		delete(m.problems, what)
		return
	}
	if errors.Is(err, store.ErrUnavailable) {
		return // the store's follower already reports this
	}
	if m.problems[what] != err.Error() {
		m.Log.Warn("cannot "+what, "error", err)
	}
	m.problems[what] = err.Error()
}

// Problems returns the current errors, sorted.
func (m *Manager) Problems() (list []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for what, err := range m.problems {
		list = append(list, "cannot "+what+": "+err)
	}
	slices.Sort(list)
	return list
}

// Restored implements store.RestoreFollower, for a store that was restored from an older backup. The former addresses
// of this node are kept: their containers claim them again as they were.
func (m *Manager) Restored() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range m.state.snap.Addresses {
		m.lose(a)
	}
	m.state, m.ready = newStoreState(), false
	m.absent, m.unheld = map[string]time.Time{}, map[string]time.Time{}
	m.Log.Warn("the store was restored from an older backup; claiming the held blocks and addresses again")
}

// Reset implements source.Follower.
func (m *Manager) Reset(entries []source.Entry, revision int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state.reset(entries, revision)
	m.ready, m.recheck = true, true
	m.wake()
}

// Change implements source.Follower.
func (m *Manager) Change(b source.Batch) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ours := false
	for _, e := range b.Entries {
		before := m.concerns(e.Key)
		ours = m.apply(e) || before || m.concerns(e.Key) || ours
	}
	if ours {
		m.wake()
	}
}

// apply applies a change that this agent did not make. It returns true if an address of this node was deleted or
// assigned to another container: the former container may hold it. What this node releases is known before the store
// reports it.
func (m *Manager) apply(e source.Entry) (lost bool) {
	a := m.state.snap.Addresses[e.Key]
	m.state.set(e)
	now := m.state.snap.Addresses[e.Key]
	if a == nil || a.Node != m.Node || now != nil && now.Node == m.Node && now.Container == a.Container {
		return false
	}
	m.lose(a)
	m.recheck = true
	return true
}

// lose remembers an address of this node that the store no longer assigns to it.
func (m *Manager) lose(a *cluster.Address) {
	if a.Node == m.Node {
		m.lost[a.Key()] = a
	}
}

// concerns reports whether a key can affect this node's files.
func (m *Manager) concerns(key string) bool {
	b := m.state.snap.Blocks[key]
	return b != nil && b.Node == m.Node || strings.HasPrefix(key, cluster.NetworksPrefix) || key == cluster.NodeKey(m.Node)
}

// Disconnected implements source.Follower. It restarts the grace periods, because nodes may return unnoticed.
func (m *Manager) Disconnected(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.away = err
	m.absent = map[string]time.Time{}
}

// Reconnected implements source.Follower.
func (m *Manager) Reconnected() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.away = nil
	m.wake()
}

// Wake triggers a reconciliation, for example because a network's MTU became known.
func (m *Manager) Wake() { m.wake() }

func (m *Manager) wake() {
	select {
	case m.dirty <- struct{}{}:
	default:
	}
}

// commit writes a transaction and applies it to the known state. After a conflict it reads the keys again for the next
// attempt.
func (m *Manager) commit(ctx context.Context, ops []store.Op) error {
	for i := range ops {
		ops[i].At = new(int64)
	}
	revision, err := m.Store.Commit(ctx, ops...)
	if err == nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.state.wrote(ops, revision)
		return nil
	}
	if c, ok := errors.AsType[*store.ConflictError](err); ok {
		return errors.Join(err, m.refresh(ctx, c.Keys))
	}
	return err
}

// refresh reads keys again. If the store reports a change of a key meanwhile, the answer may be from before the change,
// so refresh reads the key once more.
func (m *Manager) refresh(ctx context.Context, keys []string) error {
	for _, key := range keys {
		for done := false; !done; {
			m.mu.Lock()
			before := m.state.rev[key]
			m.mu.Unlock()
			e, err := m.Store.Get(ctx, key)
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("read %s again: %w", key, err)
			}
			m.mu.Lock()
			done = m.state.rev[key] == before
			switch {
			case !done:
			case err == nil:
				m.apply(source.Decode(e))
			default:
				m.apply(source.Gone(key, before))
			}
			m.mu.Unlock()
		}
	}
	return nil
}

// isConflict reports whether a failed commit can be retried.
func isConflict(err error) bool {
	return errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrUnavailable)
}
