package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"sync"
	"time"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/session"
	"github.com/fairlead/fairlead/agent/store"
)

// publisher writes this node's documents to the store. It compares them with the cached store first, so an unchanged
// document is not written.
type publisher struct {
	store      store.Store // the session's
	session    *session.Session
	conf       *config.Config
	storeCache *storeCache
	log        *slog.Logger
	status     *status
	wake       chan struct{}
	wanted     *wantedNetworks
	conditions any       // the store, which may be a conditioner
	unready    time.Time // since when this node is not ready
	reason     string    // why it is not, as the store has it; "": unknown
	reasonAt   time.Time // when the store got it
	networks   networkReports
	policy     policyReport

	mu     sync.Mutex
	self   *cluster.Node
	synced bool // the agent had synced with the store when it computed self
}

// setNode sets the node's document and wakes the publisher if it changed, or if the agent has synced with the store since.
func (p *publisher) setNode(n *cluster.Node, synced bool) {
	p.mu.Lock()
	changed := !reflect.DeepEqual(p.self, n) || synced != p.synced
	p.self, p.synced = n, synced
	p.mu.Unlock()
	if changed {
		p.kick()
	}
}

func (p *publisher) kick() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// run writes changed documents.
func (p *publisher) run(ctx context.Context) {
	const every = 2 * time.Second
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		if err := p.once(ctx); ctx.Err() == nil {
			p.status.published(err)
		}
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		case <-t.C:
		case <-p.session.Changed():
		}
	}
}

// networkReady reports the state of the networks, if the store has a place for it.
func (p *publisher) networkReady(ctx context.Context) error {
	if to, ok := p.conditions.(networkReporter); ok {
		return p.networks.report(ctx, to)
	}
	return nil
}

// conditioner is a store that shows users whether a node's network works.
type conditioner interface {
	SetNetworkUnavailable(ctx context.Context, node string, unavailable bool, since time.Time, reason, message string) error
}

// unreadyFor is the time for which a node must not be ready before the store says so. An agent that starts is not ready
// at first, although its node's network works.
const unreadyFor = 30 * time.Second

// condition reports this node's readiness, if the store has a place for it. While the node is not ready, it reports another
// reason as well, but not more often than every 30 s.
func (p *publisher) condition(ctx context.Context) error {
	c, ok := p.conditions.(conditioner)
	if !ok {
		return nil
	}
	why := p.status.NotReady()
	if why == nil {
		p.unready = time.Time{}
	} else if p.unready.IsZero() {
		p.unready = time.Now()
	}
	if why != nil && time.Since(p.unready) < unreadyFor {
		return nil
	}
	known, want := "", "False"
	if why != nil {
		want = "True"
	}
	p.storeCache.read(func(s *cluster.Snapshot) {
		if n := s.Nodes[p.conf.Node]; n != nil {
			known = n.NetworkUnavailable
		}
	})
	if why == nil {
		p.reason = ""
		if known == want {
			return nil
		}
		return c.SetNetworkUnavailable(ctx, p.conf.Node, false, time.Now(), "FairleadReady", "Fairlead connects this node's pods")
	}
	text := why.Error()
	if known == want && (text == p.reason || time.Since(p.reasonAt) < unreadyFor) {
		return nil
	}
	err := c.SetNetworkUnavailable(ctx, p.conf.Node, true, p.unready, "FairleadNotReady", text)
	if err == nil {
		p.reason, p.reasonAt = text, time.Now()
	}
	return err
}

const callFor = 5 * time.Second

func (p *publisher) once(ctx context.Context) error {
	if !p.storeCache.synced() {
		return errors.New("not synced with the store yet")
	}
	within, cancel := context.WithTimeout(ctx, callFor)
	defer cancel()
	if _, err := p.session.Revision(); err != nil {
		return err
	}
	var errs []error // of one step: the others are independent of it
	for _, do := range []func(context.Context) error{p.network, p.node, p.vnis, p.condition, p.networkReady} {
		errs = append(errs, do(within))
	}
	return errors.Join(errs...)
}

// network writes the default network if the cluster has none.
func (p *publisher) network(ctx context.Context) error {
	key := cluster.NetworkKey(cluster.DefaultNetwork)
	if p.storeCache.revisionOf(key) != 0 {
		return nil
	}
	n := p.conf.Network
	if n == nil {
		var err error
		if n, err = p.flannelNetwork(); n == nil {
			return err
		}
	}
	value, err := json.Marshal(n)
	if err != nil {
		return err
	}
	_, err = p.store.Commit(ctx, store.Op{Key: key, Value: value})
	if errors.Is(err, store.ErrConflict) {
		return nil // another node wrote it first
	}
	return err
}

// node writes this node's document. It overwrites the document of another machine with the same name: that machine
// has no session.
func (p *publisher) node(ctx context.Context) error {
	p.mu.Lock()
	self, synced := p.self, p.synced
	p.mu.Unlock()
	if self == nil || !synced { // a document from before may lack what the store has of this node
		return nil
	}
	own := *self
	own.PolicyProblem = p.policy.problem()
	value, err := json.Marshal(&own)
	if err != nil {
		return err
	}
	key := self.Key()
	if p.isPublished(value, self.Name) {
		return nil
	}
	_, err = p.store.Commit(ctx, store.Op{Key: key, Value: value, Expect: p.storeCache.revisionOf(key)})
	if errors.Is(err, store.ErrConflict) {
		return fmt.Errorf("%s: %w", key, err) // retry once the cache has the current revision
	}
	return err
}

// isPublished reports whether the store has a node's document with a value.
func (p *publisher) isPublished(value []byte, node string) (is bool) {
	p.storeCache.read(func(s *cluster.Snapshot) {
		if n := s.Nodes[node]; n != nil && s.Problems[n.Key()] == nil {
			have, err := json.Marshal(n.Published())
			is = err == nil && string(have) == string(value)
		}
	})
	return is
}
