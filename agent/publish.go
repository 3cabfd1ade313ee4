package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"sync"
	"time"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/store"
)

// publisher writes this node's documents to the store. It compares them with the cached store first, so an unchanged
// document is not written.
type publisher struct {
	store      store.Store
	conf       *config.Config
	id         string
	storeCache *storeCache
	log        *slog.Logger
	status     *status
	wake       chan struct{}

	mu     sync.Mutex
	self   *cluster.Node
	synced bool // the store was synced when self was set
	lost   <-chan struct{}
}

// aliveTTL is the time after its agent's last renewal for which a node counts as alive.
const aliveTTL = 20 * time.Second

// TakenError says that another agent uses this node's name.
type TakenError struct{ Node, By string }

func (t *TakenError) Error() string {
	return fmt.Sprintf("another agent uses the node name %s in this cluster (%s): set a different name with \"node\" in this agent's configuration, or stop the other agent", t.Node, t.By)
}

// aliveRecord is the value of a live agent's key.
type aliveRecord struct {
	ID string `json:"id"`
}

// startWait limits the time that a starting agent waits for the store to report whether its name is free. After that it
// works from its cache.
const startWait = 2 * time.Second

// claimName claims this node's name. It fails if another agent uses the name.
func (p *publisher) claimName(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	err := p.hold(ctx, within)
	if _, taken := errors.AsType[*TakenError](err); taken {
		return err
	}
	if err != nil {
		p.log.Warn("cannot check in the store whether this node's name is free", "error", err)
	}
	return nil
}

// hold claims the name for the context's lifetime. If an agent of this machine was just killed, its key still exists.
// Only one agent can run here (see lockHost), so that key is stale and can be removed.
func (p *publisher) hold(ctx, within context.Context) error {
	key := cluster.AliveKey(p.conf.Node)
	e, err := p.store.Get(within, key)
	if err == nil {
		var l aliveRecord
		if err := json.Unmarshal(e.Value, &l); err != nil || l.ID != p.id {
			return &TakenError{p.conf.Node, "machine " + l.ID}
		}
		_, err = p.store.Commit(within, store.Op{Key: key, Expect: e.Revision})
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, store.ErrConflict) {
		return err
	}
	value, err := json.Marshal(aliveRecord{p.id})
	if err != nil {
		return err
	}
	lost, err := p.store.Hold(ctx, key, value, aliveTTL)
	if errors.Is(err, store.ErrConflict) {
		return &TakenError{p.conf.Node, "it claimed the name just now"}
	}
	if err == nil {
		p.mu.Lock()
		p.lost = lost
		p.mu.Unlock()
	}
	return err
}

// setNode sets the node's document and wakes the publisher if it changed, or if the store has been synced since.
func (p *publisher) setNode(n *cluster.Node) {
	synced := p.storeCache.synced()
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

// run writes changed documents, and claims the name again after it was lost.
func (p *publisher) run(ctx context.Context) {
	const every = 2 * time.Second
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		if err := p.once(ctx); err != nil && ctx.Err() == nil {
			p.status.published(err)
			if _, taken := errors.AsType[*TakenError](err); taken {
				p.log.Error("another agent claimed this node's name while the store was unreachable; this agent stops writing", "error", err)
			}
		} else if err == nil {
			p.status.published(nil)
		}
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		case <-t.C:
		case <-p.isLost():
			p.mu.Lock()
			p.lost = nil
			p.mu.Unlock()
		}
	}
}

func (p *publisher) isLost() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost
}

const callFor = 5 * time.Second

func (p *publisher) once(ctx context.Context) error {
	if !p.storeCache.synced() {
		return errors.New("not synced with the store yet")
	}
	within, cancel := context.WithTimeout(ctx, callFor)
	defer cancel()
	if p.isLost() == nil {
		if err := p.hold(ctx, within); err != nil {
			return err
		}
	}
	for _, do := range []func(context.Context) error{p.network, p.node, p.vnis} {
		if err := do(within); err != nil {
			return err
		}
	}
	return nil
}

// network writes the default network if the cluster has none.
func (p *publisher) network(ctx context.Context) error {
	key := cluster.NetworkKey(cluster.DefaultNetwork)
	if p.storeCache.entry(key).Revision != 0 {
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

// node writes this node's document. It overwrites the document of another machine with the same name: that machine is
// dead, because we hold the name.
func (p *publisher) node(ctx context.Context) error {
	p.mu.Lock()
	self := p.self
	p.mu.Unlock()
	if self == nil {
		return nil
	}
	value, err := json.Marshal(self)
	if err != nil {
		return err
	}
	key := cluster.NodeKey(self.Name)
	have := p.storeCache.entry(key)
	if string(have.Value) == string(value) {
		return nil
	}
	_, err = p.store.Commit(ctx, store.Op{Key: key, Value: value, Expect: have.Revision})
	if errors.Is(err, store.ErrConflict) {
		return fmt.Errorf("%s: %w", key, err) // retry once the cache has the current revision
	}
	return err
}
