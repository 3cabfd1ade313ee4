package address

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/cni"
)

// codeOf is the code with which a plugin is to end.
func codeOf(err error) uint {
	if e, ok := errors.AsType[*cni.Error](err); ok {
		return e.Code
	}
	passing := []error{store.ErrUnavailable, store.ErrConflict, context.DeadlineExceeded, context.Canceled, errExhausted, errNoBlock}
	if slices.ContainsFunc(passing, func(p error) bool { return errors.Is(err, p) }) {
		return cni.CodeTryAgainLater
	}
	return cni.CodeGeneric
}

// Handlers are the operations on addresses, for a Server.
func (m *Manager) Handlers() map[string]Handler {
	return map[string]Handler{
		local.OpStatus: handler(m.status),
		local.OpBlock: handler(func(ctx context.Context, a local.BlockArgs) (any, error) {
			return nil, m.serveBlock(ctx, a)
		}),
		local.OpClaim: handler(func(ctx context.Context, a local.ClaimArgs) (any, error) {
			c, err := m.claim(ctx, a)
			if err != nil {
				return nil, err
			}
			return given{local.ClaimResult{IPs: c.ips}, func(ok bool) { m.delivered(c, ok) }}, nil
		}),
		local.OpForesee: handler(func(ctx context.Context, a local.ClaimArgs) (any, error) {
			ips, err := m.foresee(a)
			if errors.Is(err, errExhausted) && m.readJournal(ctx) == nil { // what was given back is not free before
				ips, err = m.foresee(a)
			}
			return local.ClaimResult{IPs: ips}, err
		}),
		local.OpReport: handler(func(ctx context.Context, r local.ReportArgs) (any, error) {
			return nil, m.Report(ctx, r)
		}),
	}
}

// given is a claim's answer: one that reaches nobody is taken back.
type given struct {
	local.ClaimResult
	told func(ok bool)
}

// Delivered says whether the answer has reached who asked.
func (g given) Delivered(ok bool) { g.told(ok) }

// handler decodes an operation's arguments.
func handler[T any](do func(context.Context, T) (any, error)) Handler {
	return func(ctx context.Context, raw json.RawMessage) (any, error) {
		var args T
		if err := json.Unmarshal(raw, &args); err != nil {
			return nil, cni.Errorf(cni.CodeDecodingFailure, "the arguments of the request: %w", err)
		}
		return do(ctx, args)
	}
}

// serveBlock makes sure that this node takes part in a network, and claims a block of
// each subnet asked for.
func (m *Manager) serveBlock(ctx context.Context, a local.BlockArgs) error {
	m.mu.Lock()
	ready, known := m.ready, m.view.snap.Networks[a.Network] != nil
	if ready && known {
		m.joined[a.Network] = true
		m.wake()
	}
	var err error
	switch {
	case !ready:
		err = m.notReady()
	case !known:
		err = unknownNetwork(a.Network, m.view)
	}
	m.mu.Unlock()
	if err != nil {
		return err
	}
	for _, s := range a.Subnets {
		if err := m.needFree(ctx, a.Network, s); err != nil {
			return err
		}
	}
	return m.writeFiles()
}

func (m *Manager) status(_ context.Context, a local.StatusArgs) (any, error) {
	r := local.StatusResult{Node: m.Node, Free: true}
	m.mu.Lock()
	if !m.ready || m.away != nil {
		r.Store = m.notReady().Error()
	}
	m.mu.Unlock()
	for _, s := range a.Subnets {
		if _, err := m.pickBlock(a.Network, s); err != nil {
			r.Free = false
		}
	}
	return r, nil
}

// Report writes an interface of a container into the store, or takes it away.
func (m *Manager) Report(ctx context.Context, r local.ReportArgs) error {
	if r.Container == "" || r.IfName == "" || strings.Contains(r.Container+r.IfName, "/") {
		return fmt.Errorf("endpoint %s/%s: want a container and an interface, without slashes", r.Container, r.IfName)
	}
	key := cluster.EndpointKey(m.Node, r.Container, r.IfName)
	value, err := json.Marshal(cluster.Endpoint{Network: r.Network, IPs: r.IPs, Pod: r.Pod})
	if err != nil {
		return err
	}
	for range attempts {
		was, err := m.Store.Get(ctx, key)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		op := store.Op{Key: key, Value: value, Was: was.Revision}
		if r.Gone {
			op.Value = nil
		}
		if r.Gone && was.Revision == 0 || !r.Gone && string(was.Value) == string(value) {
			return nil
		}
		if _, err = m.Store.Commit(ctx, op); !isConflict(err) {
			return err
		}
	}
	return fmt.Errorf("%s: %w", key, store.ErrConflict)
}
