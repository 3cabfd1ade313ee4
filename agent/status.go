package agent

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fairlead/fairlead/agent/backend"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/kernel/reconcile"
)

// status is what the agent says of itself: ready or why not, and counts.
type status struct {
	mu   sync.Mutex
	node string

	storeErr   error // why the store is away
	publishErr error
	lookErr    error
	problems   []backend.Problem
	left       []string // of the store
	lookedOnce bool
	bare       bool // no addresses yet
	told       bool // the store knows this node

	mtu    map[string]int // by network
	peers  int
	spaces map[string]bool // isolated networks that are here
	counts Counts
	pause  time.Duration
	turned time.Time // when the loop last turned
}

// State is what an agent says of itself.
type State struct {
	Node     string   `json:"node"`
	Ready    bool     `json:"ready"`
	Why      []string `json:"why,omitempty"`      // it is not ready
	Store    string   `json:"store,omitempty"`    // why it cannot be reached
	Publish  string   `json:"publish,omitempty"`  // why the store does not have what this node says of itself
	Problems []string `json:"problems,omitempty"` // nodes that cannot be joined
	Left     []string `json:"left,omitempty"`     // keys of the store that are not heeded
	Cannot   []string `json:"cannot,omitempty"`   // what this node's addresses and blocks want, and cannot be done
	Nodes    int      `json:"nodes"`
	Bare     bool     `json:"bare,omitempty"` // the cluster has no default network
	Peers    int      `json:"peers"`          // other nodes that this one is joined with in the default network
	Counts   Counts   `json:"counts"`
}

// State is the present one.
func (a *Agent) State() *State {
	out := a.status.state()
	a.view.read(func(s *cluster.Snapshot) { out.Nodes = len(s.Nodes) })
	out.Bare, out.Cannot = a.noNetwork(), a.manager.Problems()
	return out
}

func (s *status) state() *State {
	why := s.reasons()
	s.mu.Lock()
	defer s.mu.Unlock()
	out := &State{Node: s.node, Ready: len(why) == 0, Peers: s.peers, Counts: s.counts, Store: words(s.storeErr), Publish: words(s.publishErr)}
	for _, err := range why {
		out.Why = append(out.Why, err.Error())
	}
	for _, p := range s.problems {
		out.Problems = append(out.Problems, p.Node+": "+p.Err.Error())
	}
	out.Left = s.left
	return out
}

func words(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// mtuOf is that of a network's containers' links, in bytes; 0: not known yet.
func (s *status) mtuOf(network string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mtu[network]
}

// isHere tells whether an isolated network is on this host.
func (s *status) isHere(network string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.spaces[network]
}

// turn notes that the loop turns.
func (s *status) turn() {
	s.mu.Lock()
	s.turned = time.Now()
	s.mu.Unlock()
}

func (s *status) sinceTurn() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.turned)
}

// Counts are sums since the agent began.
type Counts struct {
	Looks    int           `json:"looks"`
	Listed   int           `json:"listed"` // looks that listed the kernel
	Made     int           `json:"made"`
	Removed  int           `json:"removed"`
	Failed   int           `json:"failed"` // looks that could not make all so
	LastTook time.Duration `json:"lastTook"`
	Objects  int           `json:"objects"` // wanted now
}

func newStatus(node string) *status { return &status{node: node, turned: time.Now()} }

// Reset implements store.Follower.
func (s *status) Reset([]store.Entry, int64) {
	s.mu.Lock()
	s.storeErr = nil
	s.mu.Unlock()
}

// Change implements store.Follower.
func (s *status) Change(store.Batch) {}

// Away implements store.Follower.
func (s *status) Away(err error) {
	s.mu.Lock()
	s.storeErr = err
	s.mu.Unlock()
}

// Back implements store.Follower.
func (s *status) Back() {
	s.mu.Lock()
	s.storeErr = nil
	s.mu.Unlock()
}

func (s *status) published(err error) {
	s.mu.Lock()
	s.publishErr = err
	s.told = s.told || err == nil
	s.mu.Unlock()
}

// wasTold notes that the store knew this node in an earlier life.
func (s *status) wasTold() {
	s.mu.Lock()
	s.told = true
	s.mu.Unlock()
}

// The pause before what failed is tried again doubles.
const (
	firstTry = 500 * time.Millisecond
	lastTry  = 10 * time.Second
)

func (s *status) failed(err error) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lookErr = err
	s.counts.Failed++
	s.pause = min(max(2*s.pause, firstTry), lastTry)
	return s.pause
}

func (s *status) looked(w *Wanted, rep *reconcile.Report, began time.Time) time.Duration {
	s.mu.Lock()
	c := &s.counts
	c.Looks++
	c.Made += rep.Applied
	c.Removed += rep.Removed
	c.Objects = len(w.Objects)
	c.LastTook = time.Since(began)
	if rep.Listed {
		c.Listed++
	}
	s.bare = w.bare
	s.left = w.Left
	s.problems, s.lookedOnce, s.mtu, s.peers = w.Problems, true, w.MTU, len(w.By[cluster.DefaultNetwork])
	s.spaces = s.here(w, rep)
	s.mu.Unlock()
	if err := rep.Err(); err != nil {
		return s.failed(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lookErr, s.pause = nil, 0
	return 0
}

// here are the isolated networks that containers can be attached to: one of which
// something failed stays what it was, as does one with a way out while something of the
// host failed, as rules on the host keep that to itself.
func (s *status) here(w *Wanted, rep *reconcile.Report) map[string]bool {
	failed, host := failures(rep.Errors)
	here := map[string]bool{}
	for _, sp := range w.Spaces {
		if failed[sp.Network] || host && sp.NAT {
			here[sp.Network] = s.spaces[sp.Network]
		} else {
			here[sp.Network] = true
		}
	}
	return here
}

// NotReady is every reason why this node's containers may not reach others' now.
func (s *status) NotReady() error { return errors.Join(s.reasons()...) }

func (s *status) reasons() (errs []error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.lookedOnce {
		errs = append(errs, errors.New("nothing is known of the cluster yet"))
	}
	if s.lookErr != nil {
		errs = append(errs, s.lookErr)
	}
	if s.bare {
		errs = append(errs, errors.New("this node has no addresses of the default network yet"))
	}
	if _, taken := errors.AsType[*TakenError](s.publishErr); taken {
		errs = append(errs, s.publishErr)
	} else if !s.told {
		errs = append(errs, errors.New("the store does not know this node yet"))
	}
	for _, p := range s.problems {
		errs = append(errs, fmt.Errorf("node %s: %w", p.Node, p.Err))
	}
	return errs
}
