package bgp

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/fairlead/fairlead/agent/backend"
	"github.com/fairlead/fairlead/kernel"
)

// Node is a node's speaker over the life of its agent: none, while nothing asks for
// one. Its zero value is ready for use, by one goroutine but for Changed.
type Node struct {
	Log *slog.Logger

	speaker *Speaker
	once    sync.Once
	changed chan struct{}
}

// Changed has something when Look would return something else.
func (n *Node) Changed() <-chan struct{} {
	n.once.Do(func() { n.changed = make(chan struct{}, 1) })
	return n.changed
}

// Look makes the speaker as wanted, nil for none, and returns what it learned. kept is
// asked for what the kernel has of an earlier life when a speaker starts.
func (n *Node) Look(ctx context.Context, want *Config, kept func() ([]backend.Learned, error)) ([]backend.Learned, error) {
	if want == nil {
		n.Stop()
		return nil, nil
	}
	if n.speaker != nil && n.speaker.Same(*want) {
		err := n.speaker.Set(ctx, *want)
		learned, err2 := n.speaker.Learned() // what is known is no less so
		return learned, errors.Join(err, err2)
	}
	n.Stop()
	have, err := kept()
	if err != nil {
		return nil, err
	}
	if n.speaker, err = Start(ctx, *want, have, n.Log); err != nil {
		n.Stop()
		return have, err
	}
	go n.forward(n.speaker)
	return n.speaker.Learned()
}

// forward passes hints on until the speaker ends.
func (n *Node) forward(s *Speaker) {
	n.Changed() // makes the channel
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

// States are the sessions with neighbours, see Speaker.States.
func (n *Node) States() map[string]string {
	out := map[string]string{}
	if n.speaker != nil {
		for a, state := range n.speaker.States() {
			out[a.String()] = state
		}
	}
	return out
}

// Stop ends the speaker; neighbours keep the node's routes for a while.
func (n *Node) Stop() {
	if n.speaker != nil {
		n.speaker.Stop()
		n.speaker = nil
	}
}

// Kept are the agent's routes of a list that go by a link's gateways, as what was
// learned by an earlier life: index is the underlay's link.
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
