package address

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/big"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/store"
)

// errNoBlock means that all blocks of a subnet are in use.
var errNoBlock = errors.New("every block of the subnet belongs to a node") // constant

// noPodCIDRError means that the range that Kubernetes gave this node is full or missing. It is an errNoBlock.
type noPodCIDRError struct {
	subnet netip.Prefix
	has    []netip.Prefix
}

func (e *noPodCIDRError) Error() string {
	if len(e.has) == 0 {
		return "the Node has no podCIDR in " + e.subnet.String() + ": see --cluster-cidr and --allocate-node-cidrs of kube-controller-manager"
	}
	return fmt.Sprintf("this node's podCIDR %s is full", e.has)
}

func (*noPodCIDRError) Is(target error) bool { return target == errNoBlock }

// attempts limits how often a transaction is retried after conflicts.
const attempts = 50

// needFree claims another block of a subnet, unless this node has a free address in it by now: the caller may have read
// the file before the last block was added.
func (m *Manager) needFree(ctx context.Context, network string, subnet netip.Prefix) error {
	m.blocks.Lock()
	defer m.blocks.Unlock()
	for _, w := range m.wants() {
		if w.network == network && w.subnet.CIDR == subnet && m.free(w) > 0 {
			return m.writeFiles()
		}
	}
	return m.need(ctx, network, subnet)
}

// need claims a block and writes this node's file.
func (m *Manager) need(ctx context.Context, network string, subnet netip.Prefix) error {
	for range attempts {
		ops, err := m.pickBlock(network, subnet)
		if err != nil {
			return fmt.Errorf("claim a block of %s of network %s: %w", subnet, network, err)
		}
		if err = m.commit(ctx, ops); err == nil {
			m.Log.Info("claimed a block", "key", ops[0].Key)
			return m.writeFiles()
		}
		if !isConflict(err) {
			return fmt.Errorf("claim a block of %s of network %s: %w", subnet, network, err)
		}
	}
	return fmt.Errorf("claim a block of %s of network %s: other nodes claimed the chosen block %d times: try again", subnet, network, attempts)
}

// pickBlock returns the changes that claim a free block.
func (m *Manager) pickBlock(network string, subnet netip.Prefix) ([]store.Op, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.notReady(); err != nil {
		return nil, err
	}
	s, err := m.subnet(network, subnet)
	if err != nil {
		return nil, err
	}
	b, err := m.freeBlock(network, s)
	if err != nil {
		return nil, err
	}
	value, err := m.blockDocument(subnet)
	if err != nil {
		return nil, err
	}
	ops, err := m.withLease(network, store.Op{Key: cluster.BlockKey(network, b), Value: value}, b)
	return append(ops, m.networkUnchanged(network)), err
}

// blockDocument returns the value of a block's key that claims it for this machine.
func (m *Manager) blockDocument(subnet netip.Prefix) ([]byte, error) {
	return json.Marshal(cluster.Block{Node: m.Node, Machine: m.Machine, Subnet: subnet})
}

// networkUnchanged checks in a transaction that the network is as known. An administrator may change or delete it now.
func (m *Manager) networkUnchanged(network string) store.Op {
	key := cluster.NetworkKey(network)
	return store.Op{Key: key, Verify: true, Expect: m.state.revision(key)}
}

// freeBlock returns the block that this node had under flannel, or the first free one. The search starts at a position
// derived from the node's name, so that nodes that start together do not collide.
func (m *Manager) freeBlock(network string, s cluster.Subnet) (netip.Prefix, error) {
	if s.Assign == cluster.AssignPodCIDR {
		has := slices.DeleteFunc(m.ownBlocks(network), func(b netip.Prefix) bool { return !s.CIDR.Contains(b.Addr()) })
		return netip.Prefix{}, &noPodCIDRError{s.CIDR, has}
	}
	if b, ok := m.formerBlock(network, s); ok {
		return b, nil
	}
	bits := s.BlockBits()
	distance := min(bits, s.CIDR.Bits()+62) // prefix length of the distance between candidates: 2^62 of them are enough
	n := uint64(1) << (distance - s.CIDR.Bits())
	start := hashOf(m.Node, network, s.CIDR.String()) % n
	for i, tried := uint64(0), 0; i < n && tried < 1<<20; tried++ {
		at := (start + i) % n
		b := netip.PrefixFrom(nthBlock(s.CIDR, distance, at).Addr(), bits)
		if m.isFree(network, s, b) {
			return b, nil
		}
		i += min(excludedFrom(s, b, distance), n-at)
	}
	return netip.Prefix{}, errNoBlock
}

// excludedFrom returns for how many candidates, from a block on, a subnet excludes all addresses: at least 1. Half of a large
// subnet has more blocks than there is time to try.
func excludedFrom(s cluster.Subnet, b netip.Prefix, distance int) uint64 {
	if len(s.Exclude) == 0 {
		return 1
	}
	whole, err := local.Subnet{CIDR: s.CIDR}.Ranges(b)
	if err != nil || len(whole) != 1 {
		return 1
	}
	for _, x := range s.Exclude {
		first, last, err := cluster.ParseRange(x)
		if err != nil || first.BitLen() != b.Addr().BitLen() || whole[0].Start.Less(first) || last.Less(whole[0].End) {
			continue
		}
		length := new(big.Int).Sub(new(big.Int).SetBytes(last.AsSlice()), new(big.Int).SetBytes(b.Addr().AsSlice()))
		length.Add(length, big.NewInt(1)).Rsh(length, uint(b.Addr().BitLen()-distance))
		if !length.IsUint64() {
			return math.MaxUint64
		}
		return max(1, length.Uint64())
	}
	return 1
}

// isReady returns nil if the manager has synced with the store and has a session.
func (m *Manager) isReady() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.notReady()
}

// notReady returns why the manager can neither answer nor write, or nil if it can.
func (m *Manager) notReady() error {
	_, err := m.Session()
	switch {
	case m.ready && err == nil:
		return nil
	case m.away != nil:
		return m.away
	case err != nil:
		return err
	}
	return fmt.Errorf("not synced with the store yet: %w", store.ErrUnavailable)
}

func (m *Manager) subnet(network string, cidr netip.Prefix) (cluster.Subnet, error) {
	n := m.state.snap.Networks[network]
	if n == nil {
		return cluster.Subnet{}, unknownNetwork(network, m.state)
	}
	if err := m.state.snap.Overlap(n); err != nil {
		return cluster.Subnet{}, err
	}
	for _, s := range n.Subnets {
		if s.CIDR == cidr && s.Assign != cluster.AssignCluster {
			return s, nil
		}
	}
	return cluster.Subnet{}, fmt.Errorf("network %s has no subnet %s that is assigned in blocks", network, cidr)
}

func unknownNetwork(name string, v *storeState) error {
	if err := v.snap.Problems[cluster.NetworkKey(name)]; err != nil {
		return err
	}
	return fmt.Errorf("the cluster has no network %q: see \"fairlead network list\"", name)
}

// ownBlocks returns this machine's blocks of a network, in order.
func (m *Manager) ownBlocks(network string) []netip.Prefix {
	return slices.DeleteFunc(m.state.snap.BlocksOf(network, m.Node), func(b netip.Prefix) bool {
		return !m.isOwn(m.state.snap.Blocks[cluster.BlockKey(network, b)].Machine)
	})
}

// hashOf returns a hash of the words.
func hashOf(words ...string) uint64 {
	h := fnv.New64a()
	for _, w := range words {
		h.Write([]byte(w + "\x00"))
	}
	return h.Sum64()
}

// nthBlock returns the i-th block of a subnet.
func nthBlock(subnet netip.Prefix, bits int, i uint64) netip.Prefix {
	raw := subnet.Addr().AsSlice()
	n := new(big.Int).SetBytes(raw)
	step := new(big.Int).Lsh(new(big.Int).SetUint64(i), uint(len(raw)*8-bits))
	a, _ := netip.AddrFromSlice(n.Add(n, step).FillBytes(raw))
	return netip.PrefixFrom(a, bits)
}
