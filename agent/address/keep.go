package address

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/ipam"
)

// keepAddresses looks, whenever the store has told all, for addresses that containers
// here have of the cluster and the store does not say so: it was set back to an earlier
// state. One that nobody has is claimed again; another's is not touched, and said.
func (m *Manager) keepAddresses(ctx context.Context) error {
	if !m.takeRecheck() {
		return nil
	}
	m.turn.Lock() // what a DEL gives back meanwhile is released after this
	defer m.turn.Unlock()
	names, err := ipam.Networks(m.Dir.Addresses())
	errs, again := []error{err}, false
	for _, name := range names {
		held, err := ipam.Held(m.Dir.Addresses(), name)
		errs = append(errs, err)
		ops, conflicts := m.missing(name, held)
		m.complain("keep addresses of network "+name, conflicts)
		again = again || conflicts != nil
		for part := range slices.Chunk(ops, store.MaxOps) {
			err := m.commit(ctx, part)
			if err != nil {
				errs = append(errs, fmt.Errorf("claim %d addresses of network %s again, which containers here hold: %w", len(part), name, err))
				continue
			}
			m.Log.Warn("claimed addresses again that the store had forgotten", "network", name, "count", len(part))
		}
	}
	err = errors.Join(errs...)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.recheck = m.recheck || again || err != nil
	if err == nil && !m.recheck {
		m.lost = nil
	}
	return err
}

func (m *Manager) takeRecheck() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	is := m.recheck
	m.recheck = false
	return is
}

// missing are the changes that make addresses of containers here theirs in the store,
// too, and what is another's there.
func (m *Manager) missing(network string, held []ipam.Holding) (ops []store.Op, conflicts error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	for _, h := range held {
		if !m.byCluster(network, h) {
			continue
		}
		key := cluster.AddressKey(network, h.Addr)
		a := m.view.snap.Addresses[key]
		switch {
		case a == nil, a.Node == "" && a.Fixed && m.was(key, h).Owner == a.Owner:
			value, err := json.Marshal(m.was(key, h))
			errs = append(errs, err)
			ops = append(ops, store.Op{Key: key, Value: value, Was: m.view.was(key)})
		case a.Node != m.Node || a.Container != h.Owner.ContainerID:
			errs = append(errs, fmt.Errorf("%s is held by container %s here, and in the store it is %s's, on node %q: attach the container anew", h.Addr, h.Owner, a.Owner, a.Node))
		}
	}
	return ops, errors.Join(errs...)
}

// byCluster tells whether the cluster gave an address that is held here.
func (m *Manager) byCluster(network string, h ipam.Holding) bool {
	if h.Owner.ContainerID == "" {
		return false
	}
	n := m.view.snap.Networks[network]
	if n == nil {
		_, err := m.Dir.Read(network)
		return err != nil // whereabouts'; else it is a network that the store has forgotten
	}
	return slices.ContainsFunc(n.Subnets, func(s cluster.Subnet) bool { return s.Assign == cluster.AssignCluster && s.CIDR.Contains(h.Addr) })
}

// was is what the store is to say of an address: what it said before, as far as is known.
func (m *Manager) was(key string, h ipam.Holding) *cluster.Address {
	if m.lost != nil {
		if a := m.lost.Addresses[key]; a != nil && a.Node == m.Node && a.Container == h.Owner.ContainerID {
			return a
		}
	}
	return &cluster.Address{Owner: h.Owner.ContainerID + " " + h.Owner.IfName, Node: m.Node, Container: h.Owner.ContainerID, IfName: h.Owner.IfName}
}
