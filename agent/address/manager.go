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
	"github.com/fairlead/fairlead/agent/store"
)

// Options are what a Manager works with.
type Options struct {
	Store store.Store
	Node  string // this one's name
	Dir   local.Dir

	// Grace is for how long a node must be absent from the store before what it
	// had is free; 0: 5 min. It must be seen absent all that time.
	Grace time.Duration

	// SubnetFile is flannel's file of this host's subnet, which is written for the
	// plugin flannel: one block of each family of the default network is lent to
	// it. "": none.
	SubnetFile string

	// Flannel is what this node's leases in flannel's keys say, but for their
	// subnets; nil as long as that is not known. Without the function there is no
	// flannel beside.
	Flannel func() *cluster.FlannelLease

	Log *slog.Logger             // nil: nothing is said
	MTU func(network string) int // of its containers' links; nil: unknown
}

// Manager looks after this node's addresses. It is a store.Follower: it has to be
// told everything below cluster.Followed, by store.FollowAll.
type Manager struct {
	Options

	mu       sync.Mutex
	view     *view
	ready    bool              // the store has told all at least once
	recheck  bool              // what is held here has to be compared with all that the store has
	lost     *cluster.Snapshot // what was known before the store was set back; nil: it was not
	away     error
	dirty    chan struct{}        // this node's files may have to be written
	joined   map[string]bool      // networks that something here asked for
	absent   map[string]time.Time // nodes that have addresses, and are not there, since when
	leaving  map[string]time.Time // blocks of ours that are not in our file any more, since when
	unheld   map[string]time.Time // addresses of ours that nothing here holds, since when
	problems map[string]string
	lent     map[bool]netip.Prefix // of IPv4 and of IPv6, to the plugin flannel
	before   []netip.Prefix        // what SubnetFile said when this began

	claims   chan *claim
	last     map[string]*claim // by key, which was told of it last, and may not have heard
	undone   map[*claim]bool   // that got what nobody took
	unwanted chan struct{}     // there is one more of these

	files  sync.Mutex // one writes this node's files at a time
	blocks sync.Mutex // one claims blocks at a time
	turn   sync.Mutex // one reads the journal, gives and releases addresses at a time
}

const (
	defaultGrace = 5 * time.Minute
	lookEvery    = time.Second            // at what is held here
	journalEvery = 200 * time.Millisecond // at the journal
	reclaimEvery = 5 * time.Second
)

// NewManager makes one. Run does its work.
func NewManager(o Options) *Manager {
	if o.Grace == 0 {
		o.Grace = defaultGrace
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.MTU == nil {
		o.MTU = func(string) int { return 0 }
	}
	return &Manager{
		Options: o, view: newView(), dirty: make(chan struct{}, 1), joined: map[string]bool{},
		absent: map[string]time.Time{}, leaving: map[string]time.Time{}, unheld: map[string]time.Time{}, problems: map[string]string{},
		lent: map[bool]netip.Prefix{}, before: readLent(o.SubnetFile),
		claims: make(chan *claim, 1024), last: map[string]*claim{}, undone: map[*claim]bool{}, unwanted: make(chan struct{}, 1),
	}
}

// Run does what is to be done until the context ends.
func (m *Manager) Run(ctx context.Context) error {
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { m.serveClaims(ctx) })
	all.Go(func() { m.every(ctx, journalEvery, "read the journal", m.readJournal) })
	all.Go(func() { m.every(ctx, reclaimEvery, "take back what nobody has", m.reclaim) })
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		err := m.look(ctx)
		m.complain("look after this node's addresses", err)
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
		m.complain(what, do(ctx))
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// complain says what went wrong, once as long as it is the same.
func (m *Manager) complain(what string, err error) {
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
		return // who reads of the store reads that already
	}
	if m.problems[what] != err.Error() {
		m.Log.Warn("cannot "+what, "error", err)
	}
	m.problems[what] = err.Error()
}

// Problems are what a person should know, in order.
func (m *Manager) Problems() (list []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for what, err := range m.problems {
		list = append(list, "cannot "+what+": "+err)
	}
	slices.Sort(list)
	return list
}

// Rewound is a store that was set back: what was known is compared with what it says
// now, and what this agent wrote since does not count.
func (m *Manager) Rewound() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ready {
		m.lost = m.view.snap
	}
	m.view, m.ready = newView(), false
	m.absent, m.unheld = map[string]time.Time{}, map[string]time.Time{}
	m.Log.Warn("the store was set back to what it was earlier: what is held here is claimed again")
}

// Reset is the store's whole content.
func (m *Manager) Reset(entries []store.Entry, revision int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.view.reset(entries, revision)
	m.ready, m.recheck = true, true
	m.wake()
}

// Change is what happened in the store.
func (m *Manager) Change(b store.Batch) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ours := false
	for _, e := range b.Events {
		ours = ours || m.concerns(e.Key)
		if e.Deleted {
			m.view.set(e.Key, nil, b.Revision)
		} else {
			m.view.set(e.Key, e.Value, e.Revision)
		}
		ours = ours || m.concerns(e.Key)
	}
	if ours {
		m.wake()
	}
}

// concerns tells whether this node's files may be others when a key is.
func (m *Manager) concerns(key string) bool {
	b := m.view.snap.Blocks[key]
	return b != nil && b.Node == m.Node || strings.HasPrefix(key, cluster.NetworksPrefix)
}

// Away is a store that cannot be reached. What was seen absent until now may have
// come and gone meanwhile.
func (m *Manager) Away(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.away = err
	m.absent = map[string]time.Time{}
}

// Back is a store that answers again.
func (m *Manager) Back() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.away = nil
	m.wake()
}

// Wake has this node's files looked at: a network's MTU became known, say.
func (m *Manager) Wake() { m.wake() }

func (m *Manager) wake() {
	select {
	case m.dirty <- struct{}{}:
	default:
	}
}

// commit makes a transaction and takes it into the view. After a conflict the keys are
// read again, so that the next attempt knows better.
func (m *Manager) commit(ctx context.Context, ops []store.Op) error {
	revision, err := m.Store.Commit(ctx, ops...)
	if err == nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.view.wrote(ops, revision)
		return nil
	}
	if c, ok := errors.AsType[*store.ConflictError](err); ok {
		return errors.Join(err, m.refresh(ctx, c.Keys))
	}
	return err
}

func (m *Manager) refresh(ctx context.Context, keys []string) error {
	for _, key := range keys {
		e, err := m.Store.Get(ctx, key)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("read %s again: %w", key, err)
		}
		m.mu.Lock()
		if err == nil {
			m.view.set(key, e.Value, e.Revision)
		} else {
			m.view.set(key, nil, max(m.view.rev[key], 0))
		}
		m.mu.Unlock()
	}
	return nil
}

// isConflict tells whether a commit may be tried again.
func isConflict(err error) bool {
	return errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrUnavailable)
}
