package bgp

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/fairlead/fairlead/agent/backend"
	"github.com/fairlead/fairlead/kernel"
)

// Node manages a node's speaker during the life of its agent. There is no speaker while no network needs one. The zero
// value is ready for use. Only Changed may be called concurrently.
type Node struct {
	Log *slog.Logger

	speaker *Speaker
	once    sync.Once
	changed chan struct{}
}

// Changed returns a channel that receives a value when Reconcile would return something else.
func (n *Node) Changed() <-chan struct{} {
	n.once.Do(func() { n.changed = make(chan struct{}, 1) })
	return n.changed
}

// Reconcile configures the speaker as wanted, or stops it if want is nil, and returns the learned routes. When a
// speaker starts, Reconcile calls kept for the routes in the kernel from an earlier process.
func (n *Node) Reconcile(ctx context.Context, want *Config, kept func() ([]backend.Learned, error)) ([]backend.Learned, error) {
	if want == nil {
		n.Stop()
		return nil, nil
	}
	if n.speaker != nil && n.speaker.Same(*want) {
		err := n.speaker.Set(ctx, *want)
		learned, err2 := n.speaker.Learned() // routes learned so far stay valid after an error
		return learned, errors.Join(err, err2)
	}
	n.Stop()
	have, err := kept()
	if err != nil {
		return nil, err
	}
	if n.speaker, err = Start(ctx, *want, have, n.Log); n.speaker == nil {
		return have, err
	}
	go n.forward(n.speaker)
	learned, err2 := n.speaker.Learned()
	return learned, errors.Join(err, err2)
}

// forward forwards change notifications until the speaker ends.
func (n *Node) forward(s *Speaker) {
	n.Changed() // creates the channel
	for {
		select {
		case <-s.Changed():
		case <-s.done:
			return
		}
		select {
		case n.changed <- struct{}{}:
		default:
		}
	}
}

// States returns the states of the sessions with neighbours, see Speaker.States.
func (n *Node) States() map[string]string {
	out := map[string]string{}
	if n.speaker != nil {
		for a, state := range n.speaker.States() {
			out[a.String()] = state
		}
	}
	return out
}

// Lost returns the neighbours that have had no session for a time, see Speaker.Lost.
func (n *Node) Lost(after time.Duration) (lost []Neighbour, next time.Duration) {
	if n.speaker == nil {
		return nil, 0
	}
	return n.speaker.Lost(after)
}

// Stop stops the speaker. Neighbours keep the node's routes for restartTime.
func (n *Node) Stop() {
	if n.speaker != nil {
		n.speaker.Stop()
		n.speaker = nil
	}
}

// Kept filters a list for the agent's routes through gateways on the underlay link, whose index is given. It returns
// them as routes that an earlier process learned.
func Kept(routes []kernel.RouteInfo, index int) (out []backend.Learned) {
	for _, r := range routes {
		if r.Protocol != backend.Protocol || r.Index != index {
			continue
		}
		l := backend.Learned{Dst: r.Dst}
		if r.Via.IsValid() {
			l.Via = append(l.Via, r.Via)
		}
		for _, h := range r.Hops {
			l.Via = append(l.Via, h.Via)
		}
		if len(l.Via) > 0 {
			out = append(out, l)
		}
	}
	return out
}
