package address

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path"
	"slices"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/ipam"
)

// reclaimLocalAddresses runs after each sync. It finds addresses that containers here hold but the store does not
// assign to them, because the store was restored from a backup. It claims free ones again. It reports those that have
// another owner and does not touch them.
func (m *Manager) reclaimLocalAddresses(ctx context.Context) error {
	if !m.consumeRecheck() {
		return nil
	}
	m.turn.Lock() // a concurrent DEL releases its address after this
	defer m.turn.Unlock()
	names, err := ipam.Networks(m.Dir.Addresses())
	errs, again := []error{err}, false
	for _, name := range names {
		held, err := ipam.Allocations(m.Dir.Addresses(), name)
		errs = append(errs, err)
		ops, conflicts := m.missingAddresses(name, held)
		m.recordProblem("reclaim addresses of network "+name, conflicts)
		again = again || conflicts != nil
		for part := range slices.Chunk(ops, store.MaxOps/2) {
			slots, err := m.slotsOf(ctx, name, part)
			if err == nil {
				err = m.commit(ctx, append(slots, part...))
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("claim %d addresses of network %s again that containers here hold: %w", len(part), name, err))
				continue
			}
			m.Log.Warn("claimed addresses again that the store had lost", "network", name, "count", len(part))
		}
	}
	err = errors.Join(errs...)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.recheck = m.recheck || again || err != nil
	if err == nil && !m.recheck {
		clear(m.lost)
	}
	return err
}

// slotsOf returns the changes that add fixed addresses to their pods' slots.
func (m *Manager) slotsOf(ctx context.Context, network string, ops []store.Op) ([]store.Op, error) {
	slots := map[string]store.Op{}
	for _, op := range ops {
		var a cluster.Address
		if err := json.Unmarshal(op.Value, &a); err != nil || !a.Fixed {
			continue
		}
		key := cluster.FixedKey(network, a.Owner, a.IfName)
		e := store.Entry{Value: slots[key].Value, Revision: slots[key].Expect}
		if e.Value == nil {
			var err error
			if e, err = m.Store.Get(ctx, key); err != nil && !errors.Is(err, os.ErrNotExist) {
				return nil, err
			}
		}
		var f cluster.Fixed
		_ = json.Unmarshal(e.Value, &f) // an older agent's value names no address
		ip, err := netip.ParseAddr(path.Base(op.Key))
		if err != nil {
			return nil, err
		}
		f.Add(ip)
		value, err := json.Marshal(f)
		if err != nil {
			return nil, err
		}
		slots[key] = store.Op{Key: key, Value: value, Expect: e.Revision}
	}
	return slices.Collect(maps.Values(slots)), nil
}

func (m *Manager) consumeRecheck() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	is := m.recheck
	m.recheck = false
	return is
}

// missingAddresses returns the changes that reclaim held addresses, and an error for those that have another owner.
func (m *Manager) missingAddresses(network string, held []ipam.Allocation) (ops []store.Op, conflicts error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	for _, h := range held {
		if !m.assignedByCluster(network, h) {
			continue
		}
		key := cluster.AddressKey(network, h.Addr)
		a := m.state.snap.Addresses[key]
		switch {
		case a == nil, a.Node == "" && a.Fixed && m.formerAddress(key, h).Owner == a.Owner:
			value, err := json.Marshal(m.formerAddress(key, h))
			errs = append(errs, err)
			ops = append(ops, store.Op{Key: key, Value: value, Expect: m.state.revision(key)})
		case a.Node != m.Node || a.Container != h.Owner.ContainerID:
			errs = append(errs, fmt.Errorf("container %s on this node holds %s, but the store assigns it to %s on node %q: attach the container again", h.Owner, h.Addr, a.Owner, a.Node))
		}
	}
	return ops, errors.Join(errs...)
}

// assignedByCluster reports whether the cluster, not a block, assigned a held address.
func (m *Manager) assignedByCluster(network string, h ipam.Allocation) bool {
	if h.Owner.ContainerID == "" {
		return false
	}
	n := m.state.snap.Networks[network]
	if n == nil {
		_, err := m.Dir.Read(network)
		return err != nil // a whereabouts network has no file; otherwise the store lost the network
	}
	return slices.ContainsFunc(n.Subnets, func(s cluster.Subnet) bool { return s.Assign == cluster.AssignCluster && s.CIDR.Contains(h.Addr) })
}

// HasWhereabouts reports whether the plugin whereabouts may have assigned addresses here: a network of this cluster has
// a file. It also returns true if that cannot be found out.
func (m *Manager) HasWhereabouts() bool {
	names, err := ipam.Networks(m.Dir.Addresses())
	return err != nil || slices.ContainsFunc(names, func(name string) bool {
		_, err := m.Dir.Read(name)
		return err != nil
	})
}

// formerAddress returns the address's document from before the restore, or a new one.
func (m *Manager) formerAddress(key string, h ipam.Allocation) *cluster.Address {
	if a := m.lost[key]; a != nil && a.Container == h.Owner.ContainerID {
		return a
	}
	return &cluster.Address{Owner: h.Owner.ContainerID + " " + h.Owner.IfName, Node: m.Node, Machine: m.Machine, Container: h.Owner.ContainerID, IfName: h.Owner.IfName}
}
