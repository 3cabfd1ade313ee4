package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/agent/address"
	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/cni"
)

// answer listens at the socket of this host.
func (a *Agent) answer(ctx context.Context) error {
	l, err := address.Listen(local.Open(a.o.Lib, a.o.Run).Socket())
	if err != nil {
		return err
	}
	s := &address.Server{Handlers: a.manager.Handlers()}
	s.Handlers[local.OpAgent] = func(context.Context, json.RawMessage) (any, error) { return a.State().short(), nil }
	s.Handlers[local.OpNetwork] = a.networkHere
	s.Handlers[local.OpStore] = func(context.Context, json.RawMessage) (any, error) { return a.toStore(), nil }
	go func() {
		if err := s.Serve(ctx, l); ctx.Err() == nil {
			a.log.Error("plugins are not answered any more", "error", err)
		}
	}()
	return nil
}

// told is how much of a list a line at the socket has: of thousands of nodes that cannot
// be joined, all would not fit.
const told = 100

// short is a state with the beginnings of its lists.
func (s *State) short() *State {
	out := *s
	for _, list := range []*[]string{&out.Why, &out.Problems, &out.Left} {
		if more := len(*list) - told; more > 0 {
			*list = append(slices.Clone((*list)[:told]), fmt.Sprintf("and %d more", more))
		}
	}
	return &out
}

// networkWait is between looks whether a network is here.
const networkWait = 20 * time.Millisecond

// networkHere waits until an isolated network's namespace is as it should be. What
// brings it is a block of it, which the plugin has asked for before.
func (a *Agent) networkHere(ctx context.Context, raw json.RawMessage) (any, error) {
	var args local.NetworkArgs
	if err := json.Unmarshal(raw, &args); err != nil {
		return nil, err
	}
	if err := a.isolated(args.Network); err != nil {
		return nil, err
	}
	for {
		if a.status.isHere(args.Network) {
			return nil, nil
		}
		select {
		case <-ctx.Done():
			err := a.status.NotReady()
			if err == nil {
				err = errors.New("this node has no addresses of it")
			}
			return nil, fmt.Errorf("network %s is not here yet: %w", args.Network, err)
		case <-time.After(networkWait):
		}
	}
}

// isolated refuses a network that every host is on: it has no namespace to wait for.
func (a *Agent) isolated(network string) (err error) {
	a.view.read(func(s *cluster.Snapshot) {
		if n := s.Networks[network]; n != nil && !n.Isolated {
			err = cni.Errorf(cni.CodeInvalidNetworkConfig, `it is not isolated: its containers are attached by ptp or bridge with "ipam": {"type": "fairlead-ipam", "network": %q}`, network)
		}
	})
	return err
}

// toStore is the part of the configuration by which commands on this host find the same
// cluster, whatever flags this agent was started with. It names files of secrets, and
// holds none.
func (a *Agent) toStore() *config.Config {
	c := a.o.Config
	return &config.Config{Node: c.Node, Store: c.Store, Flannel: config.Flannel{Prefix: c.Flannel.Prefix}}
}
