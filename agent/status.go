package agent

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/agent/backend"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/desired"
	"github.com/fairlead/fairlead/agent/session"
	"github.com/fairlead/fairlead/agent/source"
	"github.com/fairlead/fairlead/kernel/reconcile"
)

// status collects the agent's readiness, its reasons and its counters.
// It implements source.Follower to follow the store's availability.
type status struct {
	mu   sync.Mutex
	node string

	storeErr     error // nil if the store answers
	publishErr   error
	reconcileErr error
	networkErrs  []error // of isolated networks, which affect no other network
	problems     []backend.Problem
	invalid      []string // keys in the store that the agent ignores
	reconciled   bool     // at least once
	noBlocks     error    // why new containers get no addresses
	otherList    error    // which list the runtime uses instead of this agent's
	inStore      bool     // this node is published in the store
	keyError     string   // why the WireGuard key cannot be used or rotated

	mtu        map[string]int // by network
	peers      int
	namespaces map[string]bool // isolated networks that are set up on this host
	counts     Counts
	pause      time.Duration
	lastLoop   time.Time
}

// State is the agent's report about itself.
type State struct {
	Node             string   `json:"node"`
	Ready            bool     `json:"ready"`
	Reasons          []string `json:"reasons"`                // why the node is not ready
	StoreError       string   `json:"storeError,omitempty"`   // why the store cannot be reached
	PublishError     string   `json:"publishError,omitempty"` // why the store does not have this node's document
	Unreachable      []string `json:"unreachable"`            // nodes that this node cannot reach, with the reason
	Invalid          []string `json:"invalid"`                // invalid keys in the store, which the agent ignores
	Failures         []string `json:"failures"`               // what failed for this node's addresses, blocks and keys
	Nodes            int      `json:"nodes"`
	NoDefaultNetwork bool     `json:"noDefaultNetwork,omitempty"`
	Peers            int      `json:"peers"` // other nodes that this node reaches in the default network
	Counts           Counts   `json:"counts"`
}

// State returns the agent's current state.
func (a *Agent) State() *State {
	out := a.status.state()
	a.storeCache.read(func(s *cluster.Snapshot) { out.Nodes = len(s.Nodes) })
	out.NoDefaultNetwork, out.Failures = a.noNetwork(), append(a.manager.Problems(), out.Failures...)
	return out
}

func (s *status) state() *State {
	reasons, unreachable := s.reasons(), s.unreachable()
	s.mu.Lock()
	defer s.mu.Unlock()
	out := &State{Node: s.node, Ready: len(reasons) == 0, Peers: s.peers, Counts: s.counts, StoreError: errText(s.storeErr), PublishError: errText(s.publishErr)}
	for _, err := range reasons {
		out.Reasons = append(out.Reasons, err.Error())
	}
	for _, err := range unreachable {
		out.Unreachable = append(out.Unreachable, err.Error())
	}
	out.Invalid = s.invalid
	if s.keyError != "" {
		out.Failures = []string{"cannot use or rotate the WireGuard key: " + s.keyError}
	}
	for _, err := range s.networkErrs {
		out.Failures = append(out.Failures, err.Error())
	}
	return out
}

// setKeyError stores why the WireGuard key cannot be used or rotated, and reports whether that is a new error.
func (s *status) setKeyError(err error) (is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := errText(err)
	is = err != nil && text != s.keyError
	s.keyError = text
	return is
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// mtuOf returns the MTU of a network's container links in bytes, or 0 if it is not known yet.
func (s *status) mtuOf(network string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mtu[network]
}

// setMTU stores the MTU of each network's container links in bytes, and reports whether one changed.
func (s *status) setMTU(mtu map[string]int) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed = !maps.Equal(s.mtu, mtu)
	s.mtu = mtu
	return changed
}

// hasNetwork reports whether an isolated network is set up on this host.
func (s *status) hasNetwork(network string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.namespaces[network]
}

// loopRan records that the loop is running.
func (s *status) loopRan() {
	s.mu.Lock()
	s.lastLoop = time.Now()
	s.mu.Unlock()
}

func (s *status) sinceLastLoop() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.lastLoop)
}

// Counts are the agent's counters since it started.
type Counts struct {
	Reconciles int           `json:"reconciliations"`
	Listed     int           `json:"resyncs"` // reconciliations that listed the kernel's objects
	Created    int           `json:"created"`
	Removed    int           `json:"removed"`
	Failed     int           `json:"failed"` // reconciliations that ended with an error
	LastTook   time.Duration `json:"lastTook"`
	Objects    int           `json:"objects"` // in the desired state now
}

func newStatus(node string) *status { return &status{node: node, lastLoop: time.Now()} }

// Reset implements source.Follower.
func (s *status) Reset([]source.Entry, int64) {
	s.mu.Lock()
	s.storeErr = nil
	s.mu.Unlock()
}

// Change implements source.Follower.
func (s *status) Change(source.Batch) {}

// Disconnected implements source.Follower.
func (s *status) Disconnected(err error) {
	s.mu.Lock()
	s.storeErr = err
	s.mu.Unlock()
}

// Reconnected implements source.Follower.
func (s *status) Reconnected() {
	s.mu.Lock()
	s.storeErr = nil
	s.mu.Unlock()
}

func (s *status) published(err error) {
	s.mu.Lock()
	s.publishErr = err
	s.inStore = s.inStore || err == nil
	s.mu.Unlock()
}

// markPublished records that the store already has this node from an earlier run.
func (s *status) markPublished() {
	s.mu.Lock()
	s.inStore = true
	s.mu.Unlock()
}

// The pause before a retry doubles from firstRetry to lastRetry.
const (
	firstRetry = 500 * time.Millisecond
	lastRetry  = 10 * time.Second
)

func (s *status) failed(err error) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reconcileErr = err
	s.counts.Failed++
	s.pause = min(max(2*s.pause, firstRetry), lastRetry)
	return s.pause
}

func (s *status) recordReconcile(w *desired.State, rep *reconcile.Report, began time.Time) time.Duration {
	s.mu.Lock()
	c := &s.counts
	c.Reconciles++
	c.Created += rep.Applied
	c.Removed += rep.Removed
	c.Objects = len(w.Objects)
	c.LastTook = time.Since(began)
	if rep.Listed {
		c.Listed++
	}
	s.noBlocks = w.NoBlocks
	s.invalid = w.Invalid
	s.problems, s.reconciled, s.peers = w.Problems, true, len(w.By[cluster.DefaultNetwork])
	s.namespaces = s.attachable(w, rep)
	s.mu.Unlock()
	host, networks := splitErrors(rep.Errors)
	s.mu.Lock()
	s.networkErrs = networks
	s.mu.Unlock()
	if len(rep.Errors) > 0 {
		return s.failed(firstErrors(host))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reconcileErr, s.pause = nil, 0
	if rep.Busy {
		return firstRetry
	}
	return 0
}

// splitErrors returns the errors of the host, and those of single isolated networks.
func splitErrors(list []error) (host, networks []error) {
	for _, err := range list {
		if _, ofNetwork := errors.AsType[*networkError](err); ofNetwork {
			networks = append(networks, err)
		} else {
			host = append(host, err)
		}
	}
	return host, networks
}

// networkErrors returns the errors of isolated networks: of one, or of all for "".
func (s *status) networkErrors(network string) (errs []error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, err := range s.networkErrs {
		if e, is := errors.AsType[*networkError](err); network == "" || is && e.Network == network {
			errs = append(errs, err)
		}
	}
	return errs
}

// firstErrors joins the first errors of a list, and says how many more there are. Without a tunnel's link, each of its
// routes fails, and there may be one for each node.
func firstErrors(list []error) error {
	if more := len(list) - maxListed; more > 0 {
		list = append(slices.Clone(list[:maxListed]), fmt.Errorf("and %d more errors", more))
	}
	return errors.Join(list...)
}

// attachable returns the isolated networks that containers can join. A network with an error keeps its previous state.
// So does a network with NAT if the host has an error, because the host's rules isolate it.
func (s *status) attachable(w *desired.State, rep *reconcile.Report) map[string]bool {
	failed, host := failures(rep.Errors)
	here := map[string]bool{}
	for _, sp := range w.Namespaces {
		if failed[sp.Network] || host && sp.NAT {
			here[sp.Network] = s.namespaces[sp.Network]
		} else {
			here[sp.Network] = true
		}
	}
	return here
}

// NotReady returns all reasons why this node's network may not work, or nil. A peer that it cannot reach is none: other
// nodes cannot reach that peer either, and Kubernetes would start no pod on any of them.
func (s *status) NotReady() error { return errors.Join(s.reasons()...) }

func (s *status) reasons() (errs []error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.reconciled {
		errs = append(errs, errors.New("the agent has not read the cluster's state yet"))
	}
	if s.reconcileErr != nil {
		errs = append(errs, s.reconcileErr)
	}
	if s.noBlocks != nil {
		errs = append(errs, s.noBlocks)
	}
	if s.otherList != nil {
		errs = append(errs, s.otherList)
	}
	if _, taken := errors.AsType[*session.TakenError](s.publishErr); taken {
		errs = append(errs, s.publishErr)
	} else if !s.inStore {
		errs = append(errs, errors.New("this node is not in the store yet"))
	}
	known := map[string]bool{}
	for _, p := range s.problems {
		if text := p.Err.Error(); (p.Node == s.node || p.OfThisNode()) && !known[text] {
			known[text] = true
			errs = append(errs, p.Err)
		}
	}
	return errs
}

// recordList records whether the runtime uses another list than this agent's.
func (s *status) recordList(other error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.otherList = other
}

// unreachable returns why this node cannot reach some peers.
func (s *status) unreachable() (errs []error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.problems {
		if p.Node != s.node {
			errs = append(errs, fmt.Errorf("%s: %w", p.Node, p.Err))
		}
	}
	return errs
}
