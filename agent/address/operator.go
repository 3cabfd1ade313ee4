package address

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/source"
	"github.com/fairlead/fairlead/agent/store"
)

// ReleaseBlock releases a node's block on an administrator's request. A removed node's block is released at once.
// Otherwise it asks the node's agent, which releases the block once no container holds an address in it. It returns
// whether the block is free already.
func ReleaseBlock(ctx context.Context, s store.Store, network string, block netip.Prefix) (free bool, err error) {
	key := cluster.BlockKey(network, block)
	e, err := s.Get(ctx, key)
	if err != nil {
		return false, err
	}
	var b cluster.Block
	if err := json.Unmarshal(e.Value, &b); err != nil {
		return false, fmt.Errorf("read %s: %w", key, err)
	}
	gone, err := nodeIsGone(ctx, s, b.Node)
	if err != nil {
		return false, err
	}
	if gone {
		_, err := s.Commit(ctx, store.Op{Key: key, Expect: e.Revision},
			store.Op{Key: cluster.NodeKey(b.Node), Verify: true}, store.Op{Key: cluster.AliveKey(b.Node), Verify: true})
		return err == nil, err
	}
	b.Release = true
	value, err := json.Marshal(b)
	if err != nil {
		return false, err
	}
	if _, err := s.Commit(ctx, store.Op{Key: key, Value: value, Expect: e.Revision}); err != nil {
		return false, err
	}
	return waitReleased(ctx, s, key)
}

// waitReleased waits until a block is released or the context ends. Another claim of a released block lacks the
// request.
func waitReleased(ctx context.Context, s store.Store, key string) (bool, error) {
	for {
		e, err := s.Get(ctx, key)
		var b cluster.Block
		switch {
		case errors.Is(err, os.ErrNotExist), err == nil && json.Unmarshal(e.Value, &b) == nil && !b.Release:
			return true, nil
		case ctx.Err() != nil:
			return false, nil
		case err != nil:
			return false, err
		}
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// ReleaseAddress releases an address on an administrator's request. It fails if a container on an existing node has the
// address.
func ReleaseAddress(ctx context.Context, s store.Store, network string, ip netip.Addr) error {
	_, ops, err := releasing(ctx, s, network, ip)
	if err != nil {
		return err
	}
	_, err = s.Commit(ctx, ops...)
	return err
}

// MayRelease returns an address's document, or an error if the address cannot be released. The error is os.ErrNotExist
// if the address is free.
func MayRelease(ctx context.Context, s store.Store, network string, ip netip.Addr) (*cluster.Address, error) {
	a, _, err := releasing(ctx, s, network, ip)
	return a, err
}

func releasing(ctx context.Context, s store.Store, network string, ip netip.Addr) (*cluster.Address, []store.Op, error) {
	key := cluster.AddressKey(network, ip)
	e, err := s.Get(ctx, key)
	if err != nil {
		return nil, nil, err
	}
	a := &cluster.Address{}
	if err := json.Unmarshal(e.Value, a); err != nil {
		return nil, nil, fmt.Errorf("read %s: %w", key, err)
	}
	ops := []store.Op{{Key: key, Expect: e.Revision}}
	if a.Fixed {
		slot, err := slotWithout(ctx, s, network, a, ip)
		if err != nil {
			return nil, nil, err
		}
		ops = append(ops, slot...)
	}
	if a.Node == "" {
		return a, ops, nil
	}
	_, err = s.Get(ctx, cluster.NodeKey(a.Node))
	if err == nil {
		return nil, nil, fmt.Errorf("%s belongs to %s, in container %s on node %s: stop that container first", ip, a.Owner, a.Container, a.Node)
	}
	if !errors.Is(err, os.ErrNotExist) {
		return nil, nil, err
	}
	return a, append(ops, store.Op{Key: cluster.NodeKey(a.Node), Verify: true}), nil
}

// slotWithout returns the change that removes an address from its pod's slot. A slot without addresses is deleted.
func slotWithout(ctx context.Context, s store.Store, network string, a *cluster.Address, ip netip.Addr) ([]store.Op, error) {
	key := cluster.FixedKey(network, a.Owner, a.IfName)
	e, err := s.Get(ctx, key)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var f cluster.Fixed
	if err != nil || json.Unmarshal(e.Value, &f) != nil {
		return nil, err // an older agent's slot has no addresses
	}
	op := store.Op{Key: key, Expect: e.Revision}
	f.IPs = slices.DeleteFunc(f.IPs, func(have netip.Addr) bool { return have == ip })
	if len(f.IPs) > 0 {
		op.Value, err = json.Marshal(f)
	}
	return []store.Op{op}, err
}

// ReleaseNode releases everything that a removed node had, without a grace period, and returns the keys. It fails if
// the node still exists.
func ReleaseNode(ctx context.Context, s store.Store, node string) (keys []string, err error) {
	if _, err := s.Get(ctx, cluster.NodeKey(node)); err == nil {
		return nil, fmt.Errorf("node %s is in the cluster: remove it first, with \"fairlead node remove %s\"", node, node)
	} else if !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if _, err := s.Get(ctx, cluster.AliveKey(node)); err == nil {
		return nil, fmt.Errorf("node %s is alive: its containers use its addresses\nStop the agent first. On %s, type: systemctl stop fairlead-agent", node, node)
	} else if !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	entries, revision, err := s.List(ctx, "")
	if err != nil {
		return nil, err
	}
	m := NewManager(Options{Store: s})
	m.Reset(source.DecodeAll(entries), revision)
	ops, err := endpointOps(ctx, s, node)
	if err != nil {
		return nil, err
	}
	more, err := m.releaseOps(node)
	if err != nil {
		return nil, err
	}
	ops = append(ops, more...)
	for part := range slices.Chunk(ops, store.MaxOps/2) {
		if err := m.commit(ctx, append(slices.Clone(part), store.Op{Key: cluster.NodeKey(node), Verify: true})); err != nil {
			return keys, fmt.Errorf("release what node %s had: %w", node, err)
		}
		for _, o := range part {
			keys = append(keys, o.Key)
		}
	}
	return keys, nil
}
