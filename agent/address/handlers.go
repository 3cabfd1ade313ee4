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

// codeOf returns the CNI error code for an error.
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

// Handlers returns the operations on addresses, for a Server.
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
		local.OpPreview: handler(func(ctx context.Context, a local.ClaimArgs) (any, error) {
			ips, err := m.preview(a)
			if errors.Is(err, errExhausted) && m.readJournal(ctx) == nil { // pending releases may free an address
				ips, err = m.preview(a)
			}
			return local.ClaimResult{IPs: ips}, err
		}),
		local.OpReport: handler(func(ctx context.Context, r local.ReportArgs) (any, error) {
			return nil, m.Report(ctx, r)
		}),
	}
}

// given is a claim's answer. If it is not delivered, the addresses are released.
type given struct {
	local.ClaimResult
	report func(ok bool)
}

// Delivered records whether the caller received the answer.
func (g given) Delivered(ok bool) { g.report(ok) }

// handler wraps an operation to decode its arguments.
func handler[T any](do func(context.Context, T) (any, error)) Handler {
	return func(ctx context.Context, raw json.RawMessage) (any, error) {
		var args T
		if err := json.Unmarshal(raw, &args); err != nil {
			return nil, cni.Errorf(cni.CodeDecodingFailure, "the arguments of the request: %w", err)
		}
		return do(ctx, args)
	}
}

// serveBlock makes this node use a network and claims a block of each requested subnet.
func (m *Manager) serveBlock(ctx context.Context, a local.BlockArgs) error {
	m.mu.Lock()
	err := m.notReady()
	if err == nil && m.state.snap.Networks[a.Network] == nil {
		err = unknownNetwork(a.Network, m.state)
	}
	if err == nil {
		m.joined[a.Network] = true
		m.wake()
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
	err := m.notReady()
	if err == nil {
		err = m.away
	}
	if err != nil {
		r.Store = err.Error()
	}
	m.mu.Unlock()
	for _, s := range a.Subnets {
		if _, err := m.pickBlock(a.Network, s); err != nil {
			r.Free = false
		}
	}
	return r, nil
}

// Report writes a container's interface to the store, or deletes it.
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
		op := store.Op{Key: key, Value: value, Expect: was.Revision}
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
