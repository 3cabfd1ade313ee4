package address

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/source"
	"github.com/fairlead/fairlead/agent/store"
)

// readers limits the concurrent reads of confirmSlots.
const readers = 16

// confirmSlots reads the pods' current addresses from the store and returns the claims to plan again. A concurrent
// allocation for the same pod bumps the slot's revision, so the commit below fails.
func (m *Manager) confirmSlots(ctx context.Context, list []*claim) (again []*claim) {
	listed := &listedOnce{networks: map[string]error{}}
	errs := make([]error, len(list))
	var all sync.WaitGroup
	room := make(chan struct{}, readers)
	for i, c := range list {
		room <- struct{}{}
		all.Go(func() {
			errs[i] = m.confirmSlot(ctx, c, listed)
			<-room
		})
	}
	all.Wait()
	for i, c := range list {
		if errs[i] != nil {
			c.done <- fmt.Errorf("read the addresses of pod %s: %w", c.Pod, errs[i])
			continue
		}
		again = append(again, c)
	}
	return again
}

// listedOnce lists a network's addresses at most once for several claims.
type listedOnce struct {
	mu       sync.Mutex
	networks map[string]error
}

func (l *listedOnce) list(ctx context.Context, m *Manager, network string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err, done := l.networks[network]; done {
		return err
	}
	entries, _, err := m.Store.List(ctx, cluster.AddressesPrefix+network+"/")
	l.networks[network] = err
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range entries {
		m.state.set(source.Decode(e))
	}
	return err
}

// confirmSlot reads a pod's slot and the addresses that it names. Only a slot of an older agent names none.
func (m *Manager) confirmSlot(ctx context.Context, c *claim, listed *listedOnce) error {
	key := cluster.FixedKey(c.Network, c.Pod, c.IfName)
	e, err := m.Store.Get(ctx, key)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	var f cluster.Fixed
	switch {
	case err != nil: // the pod never had a fixed address
	case json.Unmarshal(e.Value, &f) != nil:
		if err := listed.list(ctx, m, c.Network); err != nil {
			return err
		}
	default:
		var keys []string
		for _, ip := range f.IPs {
			keys = append(keys, cluster.AddressKey(c.Network, ip))
		}
		if err := m.refresh(ctx, keys); err != nil {
			return err
		}
	}
	c.slot = &store.Op{Key: key, Expect: e.Revision}
	return nil
}

// slotOp returns the change of a claim's slot: it names the pod's fixed addresses, with those of the claim.
func (m *Manager) slotOp(c *claim) (store.Op, error) {
	var f cluster.Fixed
	for key := range m.state.fixed[fixedOwner{c.Network, c.Pod, c.IfName}] {
		f.Add(m.state.snap.Addresses[key].IP)
	}
	for i, w := range c.Wants {
		if w.Fixed {
			f.Add(c.ips[i])
		}
	}
	op := *c.slot
	var err error
	op.Value, err = json.Marshal(f)
	return op, err
}
