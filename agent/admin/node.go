package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/store"
)

// The states of a node.
const (
	NodeAlive   = "alive"
	NodeAway    = "away"    // its agent does not report; its containers keep running
	NodeRemoved = "removed" // its blocks and addresses stay reserved for the grace period
	NodeFlannel = "flannel" // it runs flanneld, not our agent
)

// Node is a node in short.
type Node struct {
	Name      string   `json:"name"`
	State     string   `json:"state"`
	Addresses []string `json:"addresses"`
	Blocks    []string `json:"blocks"`
	Endpoints *int     `json:"endpoints"` // containers; nil: not known
	Version   string   `json:"version,omitempty"`
	ID        string   `json:"id,omitempty"`
}

// NodeDetails is a node with everything it holds.
type NodeDetails struct {
	Node      Node           `json:"node"`
	Addresses []NodeAddress  `json:"addresses"` // fixed addresses that are on the node now
	Endpoints []NodeEndpoint `json:"endpoints"` // nil: not known
}

// NodeAddress is an address with what its key says.
type NodeAddress struct {
	Network string     `json:"network"`
	IP      netip.Addr `json:"address"`
	*cluster.Address
}

// NodeEndpoint is a container's interface with what its key says.
type NodeEndpoint struct {
	Container string       `json:"container"`
	IfName    string       `json:"ifName"`
	IPs       []netip.Addr `json:"ips"` // not null
	*cluster.Endpoint
}

// Nodes returns all nodes, sorted by name, those of flannel last.
func Nodes(s *cluster.Snapshot) []Node {
	names := map[string]bool{}
	for n := range s.Nodes {
		names[n] = true
	}
	for _, b := range s.Blocks {
		names[b.Node] = true
	}
	for _, x := range s.Addresses {
		names[x.Node] = true
	}
	delete(names, "")                                                      // of an address that is on no node
	out, blocks, endpoints := []Node{}, s.BlocksByNode(), map[string]int{} // not null in JSON
	for _, p := range s.Endpoints {
		endpoints[p.Node]++
	}
	for _, n := range sortedKeys(names) {
		out = append(out, nodeOf(s, n, blocks[n], endpoints[n]))
	}
	for _, key := range s.Leases() {
		if l := s.Flannel[key]; l.FairleadNode == "" {
			out = append(out, flannelNode(l))
		}
	}
	return out
}

// RemovedNodes returns the names of removed nodes that still have blocks or addresses.
func RemovedNodes(s *cluster.Snapshot) (names []string) {
	for _, n := range Nodes(s) {
		if n.State == NodeRemoved {
			names = append(names, n.Name)
		}
	}
	return names
}

// DescribeNode returns one node with everything it holds.
func DescribeNode(s *cluster.Snapshot, name string) (*NodeDetails, error) {
	d := &NodeDetails{Node: nodeOf(s, name, s.BlocksByNode()[name], 0), Addresses: []NodeAddress{}, Endpoints: []NodeEndpoint{}}
	for _, k := range sortedKeys(s.Addresses) {
		if a := s.Addresses[k]; a.Node == name {
			d.Addresses = append(d.Addresses, NodeAddress{a.Network, a.IP, a})
		}
	}
	if d.Node.State == NodeRemoved && len(d.Node.Blocks)+len(d.Addresses) == 0 {
		return nil, notFound("node", name, s.NodeNames())
	}
	if s.NoEndpoints {
		d.Endpoints = nil
		return d, nil
	}
	for _, k := range sortedKeys(s.Endpoints) {
		if e := s.Endpoints[k]; e.Node == name {
			d.Endpoints = append(d.Endpoints, NodeEndpoint{e.Container, e.IfName, append([]netip.Addr{}, e.IPs...), e})
		}
	}
	*d.Node.Endpoints = len(d.Endpoints)
	return d, nil
}

// flannelNode describes a node of flannel by its lease. flanneld does not report containers.
func flannelNode(l *cluster.FlannelLease) Node {
	n := Node{Name: l.NodeName(), State: NodeFlannel, Addresses: []string{}, Blocks: []string{}}
	for _, p := range l.Node().Addresses {
		n.Addresses = append(n.Addresses, p.Addr().String())
	}
	for _, p := range l.Subnets {
		n.Blocks = append(n.Blocks, p.String())
	}
	return n
}

// nodeOf describes a node with its blocks and its number of containers.
func nodeOf(s *cluster.Snapshot, name string, blocks []*cluster.Block, endpoints int) Node {
	out := Node{Name: name, State: NodeRemoved, Addresses: []string{}, Blocks: []string{}}
	if !s.NoEndpoints {
		out.Endpoints = &endpoints
	}
	if n := s.Nodes[name]; n != nil {
		out.State, out.Version, out.ID = NodeAway, n.Version, n.ID
		for _, p := range n.Addresses {
			out.Addresses = append(out.Addresses, p.Addr().String())
		}
	}
	if s.Alive[name] {
		out.State = NodeAlive
	}
	if n := s.Nodes[name]; n != nil && n.Flannel != nil {
		out.State = NodeFlannel
	}
	for _, b := range blocks {
		out.Blocks = append(out.Blocks, blockName(b.Network, b.CIDR))
	}
	return out
}

// blockName returns NETWORK:BLOCK, or the block alone for the default network.
func blockName(network string, b netip.Prefix) string {
	if network == cluster.DefaultNetwork {
		return b.String()
	}
	return network + ":" + b.String()
}

// nodeOwner is a store whose nodes belong to another system.
type nodeOwner interface {
	// RefuseToRemove returns the error of an attempt to remove a node, with the command that does it.
	RefuseToRemove(node string) error
}

// RemoveNode removes a node whose agent does not run. With dry it only verifies that it could.
func RemoveNode(ctx context.Context, s store.Store, name string, dry bool) error {
	if o, ok := s.(nodeOwner); ok {
		return o.RefuseToRemove(name)
	}
	return retried(func() error { return removeNode(ctx, s, name, dry) })
}

func removeNode(ctx context.Context, s store.Store, name string, dry bool) error {
	alive := cluster.AliveKey(name)
	if _, err := s.Get(ctx, alive); err == nil {
		return fmt.Errorf("node %s is alive: its agent would join again\nStop the agent first. On %s, type: systemctl stop fairlead-agent", name, name)
	} else if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	e, err := s.Get(ctx, cluster.NodeKey(name))
	if errors.Is(err, os.ErrNotExist) {
		snap, _, listErr := Snapshot(ctx, s)
		if listErr != nil {
			return errors.Join(err, listErr)
		}
		return notFound("node", name, snap.NodeNames())
	}
	if err != nil || dry {
		return err
	}
	if _, err := s.Commit(ctx, store.Op{Key: alive, Verify: true}, store.Op{Key: e.Key, Expect: e.Revision}); err != nil {
		return fmt.Errorf("remove node %s: %w", name, err)
	}
	return nil
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
