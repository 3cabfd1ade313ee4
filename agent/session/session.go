// Package session gives one agent at a time the right to write for a node.
//
// An agent holds the key alive/NODE. Each commit verifies the key's revision in its transaction, so that an agent that
// lost the key without noticing (it was paused, or its host was cut off) writes nothing.
package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/store"
)

// TTL is the time after its agent's last renewal for which a node counts as alive.
const TTL = 20 * time.Second

const (
	retryEvery = time.Second
	callFor    = 5 * time.Second // limit of one attempt
	startWait  = 2 * time.Second // limit of the first attempt, after which the agent works from its cache
)

// Identity distinguishes agents with the same node name.
type Identity struct {
	Node     string
	Machine  string // created once and stored on disk; a cloned disk has the same
	Instance string // created once per boot and directory of runtime state; a cloned disk has another
}

// record is the value of the key.
type record struct {
	ID       string `json:"id"`
	Instance string `json:"instance,omitempty"`
}

// TakenError says that another agent uses this node's name. It counts as store.ErrUnavailable: the store is not
// available to this agent.
type TakenError struct {
	Node, By string
	sameDisk bool // the agent has this machine's ID: it ran before a restart, or on a copy of this machine's disk
}

func (t *TakenError) Error() string {
	return fmt.Sprintf("another agent uses the node name %s in this cluster (%s): stop the other agent, or set a different name with \"node\" in this agent's configuration. In Kubernetes, if there is no other agent, delete the Lease node.%s", t.Node, t.By, t.Node)
}

// Unwrap returns store.ErrUnavailable.
func (*TakenError) Unwrap() error { return store.ErrUnavailable }

func isTaken(err error) bool {
	_, is := errors.AsType[*TakenError](err)
	return is
}

// Session is a node's right to write. It is safe for concurrent use.
type Session struct {
	Identity
	store store.Store
	log   *slog.Logger
	ttl   time.Duration
	retry time.Duration // shortest pause between attempts; see backoff

	mu      sync.Mutex
	held    *store.Held // nil: no session
	err     error       // why there is no session
	ended   chan struct{}
	changed chan struct{} // receives after each begin and end
}

var errNotYet = fmt.Errorf("this agent has no session with the store yet: %w", store.ErrUnavailable)

// New returns a session that has not begun.
func New(s store.Store, id Identity, log *slog.Logger) *Session {
	return &Session{Identity: id, store: s, log: log, ttl: TTL, retry: retryEvery, err: errNotYet, changed: make(chan struct{}, 1)}
}

// Changed receives after the session has begun or ended.
func (s *Session) Changed() <-chan struct{} { return s.changed }

// Revision returns the revision of the session's key, which differs between sessions, or an error if there is no
// session. The error is a TakenError or store.ErrUnavailable.
func (s *Session) Revision() (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held == nil {
		return 0, s.err
	}
	return s.held.Revision, nil
}

// Start tries to begin the session for the context's lifetime. It returns a TakenError if another machine uses the
// name. If the store does not answer, it returns nil, and Run continues.
func (s *Session) Start(ctx context.Context) error {
	err := s.begin(ctx, startWait)
	if isTaken(err) && s.removeEarlier(ctx) {
		err = s.begin(ctx, startWait)
	}
	t, taken := errors.AsType[*TakenError](err)
	switch {
	case taken && t.sameDisk:
		return s.waitForEarlierBoot(ctx)
	case taken:
		return t
	case err != nil:
		s.log.Warn("cannot check in the store whether this node's name is free; writing nothing until it answers", "error", err)
	}
	return nil
}

// bootStore is a store whose sessions do not expire, because the node's boot tells whether one has ended.
type bootStore interface {
	// NodeBoot returns the boot ID that a node reports, or "".
	NodeBoot(ctx context.Context, node string) (string, error)
}

// removeEarlier removes the session of an agent that was killed in this boot of the node, and reports whether it did. A
// new agent of the same boot has another instance if the directory of runtime state is new: after "kubeadm reset", and if
// the node is a container that was started again. If the other agent lives, it notices at its next commit, and does not
// claim the name again.
func (s *Session) removeEarlier(ctx context.Context) bool {
	boots, ok := s.store.(bootStore)
	if !ok || bootOf(s.Instance) == "" {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	e, err := s.store.Get(ctx, cluster.AliveKey(s.Node))
	if err != nil || bootOf(decode(e.Value).Instance) != bootOf(s.Instance) {
		return false
	}
	if now, err := boots.NodeBoot(ctx, s.Node); err != nil || now != bootOf(s.Instance) {
		return false
	}
	if _, err = s.store.Commit(ctx, store.Op{Key: e.Key, Expect: e.Revision}); err != nil {
		return false
	}
	s.log.Warn("removed the session of an earlier agent of this boot, which ended without removing it", "machine", decode(e.Value).ID)
	return true
}

// bootOf returns the boot ID in an instance: its first word.
func bootOf(instance string) string {
	boot, _, _ := strings.Cut(instance, " ")
	return boot
}

// waitForEarlierBoot waits until the key of an earlier boot expires. A machine with a copy of this machine's disk keeps
// its key.
func (s *Session) waitForEarlierBoot(ctx context.Context) error {
	s.log.Info("waiting until the session of this machine's earlier boot expires", "atMost", s.ttl)
	for end := time.Now().Add(s.ttl + s.ttl/4); ; {
		err := s.begin(ctx, callFor)
		t, taken := errors.AsType[*TakenError](err)
		switch {
		case !taken:
			return ctx.Err() // Run retries after other errors
		case time.Now().After(end):
			return t
		}
		if err := pause(ctx, s.retry/2); err != nil {
			return err
		}
	}
}

// Run begins the session again whenever it has ended, until the context ends.
func (s *Session) Run(ctx context.Context) {
	again := backoff{first: s.retry}
	for ctx.Err() == nil {
		if held := s.current(); held != nil {
			again.reset()
			s.watch(ctx, held)
			continue
		}
		_, before := s.Revision()
		err := s.begin(ctx, callFor)
		if err == nil {
			continue
		}
		if isTaken(err) && !isTaken(before) {
			s.log.Error("another agent claimed this node's name; this agent writes nothing", "error", err)
		}
		if isTaken(err) {
			again.reset() // the store answers
		}
		again.wait(ctx)
	}
}

// pause waits. It returns an error if the context has ended.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func (s *Session) current() *store.Held {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held
}

// begin claims the key. If an agent of this instance was just killed, its key still exists. Only one agent can run on an
// instance (it locks its directory), so that key is stale and can be removed.
func (s *Session) begin(ctx context.Context, limit time.Duration) error {
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	held, err := s.claim(ctx, within)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.err = err
		return err
	}
	s.held, s.err, s.ended = held, nil, make(chan struct{})
	s.signal()
	return nil
}

func (s *Session) claim(ctx, within context.Context) (*store.Held, error) {
	key := cluster.AliveKey(s.Node)
	e, err := s.store.Get(within, key)
	if err == nil {
		if by := decode(e.Value); by.ID != s.Machine || by.Instance != s.Instance {
			return nil, s.taken(by)
		}
		_, err = s.store.Commit(within, store.Op{Key: key, Expect: e.Revision})
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, store.ErrConflict) {
		return nil, err
	}
	value, err := json.Marshal(record{s.Machine, s.Instance})
	if err != nil {
		return nil, err
	}
	// The key lives as long as ctx, but the attempt must not.
	life, stop := context.WithCancel(ctx)
	give := context.AfterFunc(within, stop)
	held, err := s.store.Hold(life, key, value, s.ttl)
	if !give() || err != nil {
		stop()
	}
	switch {
	case errors.Is(err, store.ErrConflict):
		return nil, &TakenError{Node: s.Node, By: "it claimed the name just now"}
	case err == nil && life.Err() != nil:
		held.Release()
		err = fmt.Errorf("begin a session: %w", store.ErrUnavailable)
	}
	if err != nil {
		return nil, err
	}
	return held, nil
}

// decode returns the zero record for a value that somebody else wrote.
func decode(value []byte) (r record) {
	_ = json.Unmarshal(value, &r)
	return r
}

func (s *Session) taken(by record) error {
	if by.ID == s.Machine {
		return &TakenError{s.Node, "this machine before a restart, or a machine with a copy of its disk", true}
	}
	return &TakenError{Node: s.Node, By: "machine " + by.ID}
}

// watch waits until the session ends. It notices that somebody deleted or replaced the key.
func (s *Session) watch(ctx context.Context, held *store.Held) {
	key := cluster.AliveKey(s.Node)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		s.watchKey(ctx, key, held.Revision)
	}()
	s.mu.Lock()
	ended := s.ended
	s.mu.Unlock()
	select {
	case <-ctx.Done():
		return
	case <-ended:
	case <-held.Lost:
		s.end(held, fmt.Errorf("this agent's session expired because the store did not answer: %w", store.ErrUnavailable))
	case <-gone:
		s.end(held, fmt.Errorf("another program deleted this agent's key %s in the store: %w", key, store.ErrUnavailable))
	}
	held.Release()
}

// watchKey returns when the key is deleted or has another revision, or when the context ends. The Kubernetes API may
// report a deletion with the revision of the deleted object.
func (s *Session) watchKey(ctx context.Context, key string, revision int64) {
	other := errors.New("the key changed")
	again := backoff{first: s.retry}
	for after := revision; ctx.Err() == nil; {
		began := time.Now()
		err := s.store.Watch(ctx, key, after, func(b store.Batch) error {
			for _, e := range b.Events {
				if e.Key == key && (e.Deleted || e.Revision != revision) {
					return other
				}
			}
			return nil
		})
		if errors.Is(err, other) {
			return
		}
		now, err := s.store.Commit(ctx, store.Op{Key: key, Verify: true, Expect: revision})
		if errors.Is(err, store.ErrConflict) {
			return
		}
		if err == nil {
			after = max(after, now) // the store may have compacted the session's own revision
		}
		if time.Since(began) > again.longest() {
			again.reset() // the watch worked
		}
		again.wait(ctx)
	}
}

// end ends a session, unless it has ended already.
func (s *Session) end(held *store.Held, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held != held {
		return
	}
	s.held, s.err = nil, why
	close(s.ended)
	s.signal()
	s.log.Warn("this node's session ended; writing nothing until it begins again", "error", why)
}

func (s *Session) signal() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}
