package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/store"
)

// The results of ApplyNetwork.
const (
	Created   = "created"
	Changed   = "changed"
	Unchanged = "unchanged"
)

// Network returns a network and its revision in the store.
func Network(ctx context.Context, s store.Store, name string) (*cluster.Network, int64, error) {
	e, err := s.Get(ctx, cluster.NetworkKey(name))
	if errors.Is(err, os.ErrNotExist) {
		snap, _, err := Snapshot(ctx, s)
		if err != nil {
			return nil, 0, err
		}
		return nil, 0, notFound("network", name, sortedKeys(snap.Networks))
	}
	if err != nil {
		return nil, 0, err
	}
	n := &cluster.Network{Name: name}
	if err := json.Unmarshal(e.Value, n); err != nil {
		return nil, e.Revision, &unreadableError{e.Key, err}
	}
	return n, e.Revision, nil
}

// unreadableError reports a network's document that another program wrote. Applying a network replaces it.
type unreadableError struct {
	key string
	err error
}

func (e *unreadableError) Error() string {
	return fmt.Sprintf("read %s: %v\nTo replace the network, type: fairlead network apply -f FILE", e.key, e.err)
}

// readable turns an unreadable network into one about which nothing is known.
func readable(n *cluster.Network, revision int64, err error) (*cluster.Network, int64, error) {
	if _, is := errors.AsType[*unreadableError](err); is {
		return &cluster.Network{}, revision, nil
	}
	return n, revision, err
}

// attempts limits how often a change is repeated because agents claimed blocks or addresses at the same time.
const attempts = 20

// retried repeats a change until it meets no concurrent one.
func retried(change func() error) (err error) {
	for range attempts {
		if err = change(); !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
	return fmt.Errorf("%w (%d times in a row): try again", err, attempts)
}

// CreateNetwork adds a network. With dry it only verifies that it could.
func CreateNetwork(ctx context.Context, s store.Store, n *cluster.Network, dry bool) error {
	return retried(func() error { return createNetwork(ctx, s, n, dry) })
}

func createNetwork(ctx context.Context, s store.Store, n *cluster.Network, dry bool) error {
	snap, revisions, err := Snapshot(ctx, s)
	if err != nil {
		return err
	}
	if revisions[cluster.NetworkKey(n.Name)] != 0 {
		return fmt.Errorf("network %s exists\nTo change it, type: fairlead network apply -f FILE", n.Name)
	}
	return putNetwork(ctx, s, snap, n, 0, dry)
}

// ApplyNetwork creates a network or changes it, and returns Created, Changed or Unchanged. An isolated network without
// a VNI keeps the VNI that it has in the store: its tunnels use it. With dry it returns what it would do once the
// networks in before are applied.
func ApplyNetwork(ctx context.Context, s store.Store, n *cluster.Network, dry bool, before ...*cluster.Network) (did string, err error) {
	err = retried(func() error { did, err = applyNetwork(ctx, s, n, dry, before); return err })
	return did, err
}

func applyNetwork(ctx context.Context, s store.Store, n *cluster.Network, dry bool, before []*cluster.Network) (string, error) {
	snap, revisions, err := Snapshot(ctx, s)
	if err != nil {
		return "", err
	}
	for _, b := range before {
		snap.Put(b.Key(), b, nil)
	}
	revision := revisions[cluster.NetworkKey(n.Name)]
	if revision == 0 {
		return Created, putNetwork(ctx, s, snap, n, 0, dry)
	}
	old, revision, err := readable(Network(ctx, s, n.Name))
	if err != nil {
		return "", err
	}
	if snap.Networks[n.Name] == nil { // an invalid network does not say what it was
		old.Isolated = n.Isolated
	}
	if n.Isolated && n.VNI == 0 {
		same := *n
		same.VNI = old.VNI
		n = &same
	}
	if same, err := sameDocument(old, n); err != nil || same {
		return Unchanged, err
	}
	if err := snap.CheckChange(old, n); err != nil {
		return "", err
	}
	return Changed, putNetwork(ctx, s, snap, n, revision, dry)
}

// sameDocument reports whether two networks have the same document. An empty list is like one that is missing.
func sameDocument(a, b *cluster.Network) (bool, error) {
	one, err := json.Marshal(a)
	if err != nil {
		return false, err
	}
	other, err := json.Marshal(b)
	return bytes.Equal(one, other), err
}

// asRead checks in a transaction that no network was changed and that no node claimed a block or an address of a
// network since a snapshot.
func asRead(snap *cluster.Snapshot, network string) []store.Op {
	var ops []store.Op
	for _, prefix := range []string{cluster.NetworksPrefix, cluster.BlocksPrefix + network + "/", cluster.AddressesPrefix + network + "/"} {
		ops = append(ops, store.Op{Key: prefix, Below: true, Expect: snap.Revision})
	}
	return ops
}

// putNetwork writes a network that is valid and does not conflict with the others.
func putNetwork(ctx context.Context, s store.Store, snap *cluster.Snapshot, n *cluster.Network, revision int64, dry bool) error {
	if err := n.Check(); err != nil {
		return err
	}
	if err := snap.Fits(n); err != nil {
		return err
	}
	value, err := json.Marshal(n)
	if err != nil || dry {
		return err
	}
	ops := append(asRead(snap, n.Name), store.Op{Key: cluster.NetworkKey(n.Name), Value: value, Expect: revision})
	had := 0
	if old := snap.Networks[n.Name]; old != nil {
		had = old.VNI
	}
	if n.Isolated && n.VNI != had {
		reserve, err := reserveVNI(ctx, s, n.Name, n.VNI)
		if err != nil {
			return err
		}
		ops = append(ops, reserve...)
		release, err := releaseVNI(ctx, s, n.Name, had)
		if err != nil {
			return err
		}
		ops = append(ops, release...)
	}
	_, err = s.Commit(ctx, ops...)
	if errors.Is(err, store.ErrConflict) {
		return fmt.Errorf("write network %s: it was changed at the same time: %w", n.Name, err)
	}
	return err
}

// DeleteNetwork removes a network that no node uses. With dry it only verifies that it could.
func DeleteNetwork(ctx context.Context, s store.Store, name string, dry bool) error {
	return retried(func() error { return deleteNetwork(ctx, s, name, dry) })
}

func deleteNetwork(ctx context.Context, s store.Store, name string, dry bool) error {
	n, revision, err := readable(Network(ctx, s, name))
	if err != nil {
		return err
	}
	snap, _, err := Snapshot(ctx, s)
	if err != nil {
		return err
	}
	if err := snap.CheckUnused(name); err != nil || dry {
		return err
	}
	ops, err := releaseVNI(ctx, s, name, n.VNI)
	if err != nil {
		return err
	}
	ops = append(append(ops, asRead(snap, name)...), store.Op{Key: cluster.NetworkKey(name), Expect: revision})
	if _, err = s.Commit(ctx, ops...); err != nil {
		return fmt.Errorf("delete network %s: %w", name, err)
	}
	return nil
}

// reserveVNI returns the operation that reserves a VNI for a network, or none if it is reserved for this network: the
// network became invalid since. It fails if the VNI is reserved for another network.
func reserveVNI(ctx context.Context, s store.Store, network string, vni int) ([]store.Op, error) {
	if vni == 0 {
		return nil, nil
	}
	e, err := s.Get(ctx, cluster.VNIKey(vni))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if err == nil && string(e.Value) == network {
		return nil, nil
	}
	if err == nil {
		return nil, fmt.Errorf("network %s: vni %d is reserved for network %s: choose another one", network, vni, e.Value)
	}
	return []store.Op{{Key: cluster.VNIKey(vni), Value: []byte(network)}}, nil
}

// releaseVNI returns the operation that releases a network's VNI, or none if the VNI is not reserved for this network.
func releaseVNI(ctx context.Context, s store.Store, network string, vni int) ([]store.Op, error) {
	if vni == 0 {
		return nil, nil
	}
	e, err := s.Get(ctx, cluster.VNIKey(vni))
	if errors.Is(err, os.ErrNotExist) || err == nil && string(e.Value) != network {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return []store.Op{{Key: e.Key, Expect: e.Revision}}, nil
}
