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

// publisher tells the store of this node. What it says is compared with what the
// store has, so that nothing is written when nothing changed.
type publisher struct {
	store  store.Store
	conf   *config.Config
	id     string
	view   *view
	log    *slog.Logger
	status *status
	wake   chan struct{}

	mu    sync.Mutex
	self  *cluster.Node
	heard bool // the store, when self was wanted
	lost  <-chan struct{}
}

// aliveFor is how long a node is taken to live after its agent was last heard.
const aliveFor = 20 * time.Second

// TakenError is another agent that has this node's name.
type TakenError struct{ Node, By string }

func (t *TakenError) Error() string {
	return fmt.Sprintf("another agent is node %s of this cluster (%s): give this one another name, \"node\" in its configuration, or end the other", t.Node, t.By)
}

// life is what the key of a living agent says.
type life struct {
	ID string `json:"id"`
}

// startWait is how long an agent that starts waits for the store, to learn whether
// its name is free. After that it works from what it knew.
const startWait = 2 * time.Second

// claimName holds this node's name, or refuses to start if another has it.
func (p *publisher) claimName(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	err := p.hold(ctx, within)
	if _, taken := errors.AsType[*TakenError](err); taken {
		return err
	}
	if err != nil {
		p.log.Warn("the store did not say whether this node's name is free", "error", err)
	}
	return nil
}

// hold holds the name as long as the context lives. An agent of this machine that was
// killed a moment ago still has it: as only one can run here (see alone), it is dead.
func (p *publisher) hold(ctx, within context.Context) error {
	key := cluster.AliveKey(p.conf.Node)
	e, err := p.store.Get(within, key)
	if err == nil {
		var l life
		if err := json.Unmarshal(e.Value, &l); err != nil || l.ID != p.id {
			return &TakenError{p.conf.Node, "machine " + l.ID}
		}
		_, err = p.store.Commit(within, store.Op{Key: key, Was: e.Revision})
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, store.ErrConflict) {
		return err
	}
	value, err := json.Marshal(life{p.id})
	if err != nil {
		return err
	}
	lost, err := p.store.Hold(ctx, key, value, aliveFor)
	if errors.Is(err, store.ErrConflict) {
		return &TakenError{p.conf.Node, "at this moment"}
	}
	if err == nil {
		p.mu.Lock()
		p.lost = lost
		p.mu.Unlock()
	}
	return err
}

// wants says what the store should have of this node. What could not be written before
// the store was heard is written as soon as it is.
func (p *publisher) wants(n *cluster.Node) {
	heard := p.view.isFresh()
	p.mu.Lock()
	changed := !reflect.DeepEqual(p.self, n) || heard != p.heard
	p.self, p.heard = n, heard
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

// run writes what differs, and holds the name again when it was lost.
func (p *publisher) run(ctx context.Context) {
	const every = 2 * time.Second
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		if err := p.once(ctx); err != nil && ctx.Err() == nil {
			p.status.published(err)
			if _, taken := errors.AsType[*TakenError](err); taken {
				p.log.Error("this node's name was taken while the store was away: nothing more is written", "error", err)
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
	if !p.view.isFresh() {
		return errors.New("the store was not heard yet")
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

// network writes the default network where the cluster has none.
func (p *publisher) network(ctx context.Context) error {
	key := cluster.NetworkKey(cluster.DefaultNetwork)
	if p.view.entry(key).Revision != 0 {
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
		return nil // another node was first
	}
	return err
}

// node writes this node's document. One of another machine of the same name, which
// is dead as the name could be held, is taken over.
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
	have := p.view.entry(key)
	if string(have.Value) == string(value) {
		return nil
	}
	_, err = p.store.Commit(ctx, store.Op{Key: key, Value: value, Was: have.Revision})
	if errors.Is(err, store.ErrConflict) {
		return fmt.Errorf("%s: %w", key, err) // the view will have what is there; then again
	}
	return err
}
