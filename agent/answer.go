package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/agent/address"
	"github.com/fairlead/fairlead/agent/address/local"
)

// answer listens at the socket of this host.
func (a *Agent) answer(ctx context.Context) error {
	l, err := address.Listen(local.Open(a.o.Lib, a.o.Run).Socket())
	if err != nil {
		return err
	}
	s := &address.Server{Handlers: a.manager.Handlers()}
	s.Handlers[local.OpAgent] = func(context.Context, json.RawMessage) (any, error) { return a.State(), nil }
	s.Handlers[local.OpNetwork] = a.networkHere
	go func() {
		if err := s.Serve(ctx, l); ctx.Err() == nil {
			a.log.Error("plugins are not answered any more", "error", err)
		}
	}()
	return nil
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
