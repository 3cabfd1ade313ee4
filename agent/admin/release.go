package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"

	"github.com/fairlead/fairlead/agent/address"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/store"
)

// ReleaseBlock releases a block of a network. It returns the node that has the block, and whether the block is free
// already: a node that exists keeps it until no container uses one of its addresses. With dry nothing is changed.
func ReleaseBlock(ctx context.Context, s store.Store, network string, block netip.Prefix, dry bool) (node string, free bool, err error) {
	snap, _, err := Snapshot(ctx, s)
	if err != nil {
		return "", false, err
	}
	key := cluster.BlockKey(network, block)
	if err := snap.Problems[key]; err != nil {
		return "", false, fmt.Errorf("release block %s of network %s: %w: the agents ignore this key: write it again, or delete it", block, network, err)
	}
	b := snap.Blocks[key]
	if b == nil {
		return "", false, noBlock(snap, network, block)
	}
	if b.OfNode {
		return "", false, fmt.Errorf("release block %s of network %s: it is the podCIDR of Node %s, which Kubernetes assigns: it is free when the Node is deleted", block, network, b.Node)
	}
	if dry {
		return b.Node, snap.Nodes[b.Node] == nil, nil
	}
	if free, err = address.ReleaseBlock(ctx, s, network, block); err != nil {
		return "", false, fmt.Errorf("release block %s of network %s: %w", block, network, err)
	}
	return b.Node, free, nil
}

// noBlock names the network that has the block, if another one does.
func noBlock(snap *cluster.Snapshot, network string, block netip.Prefix) error {
	for _, b := range snap.Blocks {
		if b.CIDR == block && b.Network != network {
			return ofOther("block", block.String(), b.Network, network)
		}
	}
	if snap.Networks[network] == nil {
		return notFound("network", network, sortedKeys(snap.Networks))
	}
	return &NotFoundError{fmt.Sprintf("no node has block %s of network %s\nType: fairlead ipam show", block, network)}
}

// ofOther names the network that has a block or an address, instead of the one that was asked for.
func ofOther(kind, text, has, asked string) error {
	return &NotFoundError{fmt.Sprintf("%s %s belongs to network %s, not to %s\nType: fairlead ipam release %s", kind, text, has, asked, cluster.OnCommandLine(text, has))}
}

// ReleaseAddress takes an address that the cluster assigned from its owner, and returns the owner. With dry nothing is
// changed.
func ReleaseAddress(ctx context.Context, s store.Store, network string, ip netip.Addr, dry bool) (owner string, err error) {
	what := fmt.Sprintf("address %s of network %s", ip, network)
	has, err := address.MayRelease(ctx, s, network, ip)
	if errors.Is(err, os.ErrNotExist) {
		snap, _, err := Snapshot(ctx, s)
		return "", cmp.Or(err, noAddress(snap, network, ip))
	}
	if err == nil && !dry {
		err = address.ReleaseAddress(ctx, s, network, ip)
	}
	if err != nil {
		return "", fmt.Errorf("release %s: %w", what, err)
	}
	return has.Owner, nil
}

// noAddress names the network in which the cluster assigned the address, if another one did.
func noAddress(snap *cluster.Snapshot, network string, ip netip.Addr) error {
	for _, a := range snap.Addresses {
		if a.IP == ip && a.Network != network {
			return ofOther("address", ip.String(), a.Network, network)
		}
	}
	if snap.Networks[network] == nil {
		return &NotFoundError{fmt.Sprintf("the cluster did not assign address %s of network %s\nType: fairlead ipam show", ip, network)}
	}
	return &NotFoundError{fmt.Sprintf("the cluster did not assign address %s of network %s; the node that has its block assigns it, and frees it when the container is deleted\nOn that node, type: fairlead list", ip, network)}
}

// ReleaseNode releases all blocks and addresses of a removed node, and returns how many it released. With dry it
// returns how many it would release.
func ReleaseNode(ctx context.Context, s store.Store, node string, dry bool) (int, error) {
	snap, revisions, err := Snapshot(ctx, s)
	if err != nil {
		return 0, err
	}
	exists := revisions[cluster.NodeKey(node)] != 0 // its document may be invalid
	if removed := RemovedNodes(snap); !exists && !slices.Contains(removed, node) {
		return 0, notFound("removed node", node, removed)
	}
	if dry && !exists {
		count := 0
		for _, b := range snap.Blocks {
			if b.Node == node {
				count++
			}
		}
		for _, a := range snap.Addresses {
			if a.Node == node {
				count++
			}
		}
		return count, nil
	}
	if dry {
		return 0, fmt.Errorf("node %s is in the cluster: remove it first\nType: fairlead node remove %s", node, node)
	}
	keys, err := address.ReleaseNode(ctx, s, node)
	return len(keys), err
}
