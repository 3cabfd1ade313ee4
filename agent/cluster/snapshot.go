package cluster

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// Snapshot is the content of the store at one revision. Invalid entries are listed in Problems and do not affect
// others.
type Snapshot struct {
	Revision  int64
	Networks  map[string]*Network
	Nodes     map[string]*Node
	Alive     map[string]bool
	Blocks    map[string]*Block   // by key
	Addresses map[string]*Address // by key
	Endpoints map[string]*Endpoint
	Flannel   map[string]*FlannelLease // by key
	Problems  map[string]error         // by key

	FlannelConfig *FlannelConfig // nil: none
	NoEndpoints   bool           // the store keeps no endpoints, so nothing is known about containers

	ofNode map[string][]string // keys of the blocks that Kubernetes gave a node, see derive
	rivals map[string][]string // nodes whose podCIDR another node has, by key of the block; sorted
	hidden map[string]*Block   // blocks that nodes claimed although Kubernetes gave them to a node, by key
}

// NewSnapshot returns an empty snapshot.
func NewSnapshot() *Snapshot {
	return &Snapshot{
		Networks: map[string]*Network{}, Nodes: map[string]*Node{}, Alive: map[string]bool{}, Blocks: map[string]*Block{},
		Addresses: map[string]*Address{}, Endpoints: map[string]*Endpoint{}, Flannel: map[string]*FlannelLease{}, Problems: map[string]error{}, ofNode: map[string][]string{},
		rivals: map[string][]string{}, hidden: map[string]*Block{},
	}
}

// Set decodes a key's value and puts the document into the snapshot; nil means deleted.
func (s *Snapshot) Set(key string, value []byte) {
	if value == nil {
		s.Put(key, nil, nil)
		return
	}
	d, err := Decode(key, value)
	s.Put(key, d, err)
}

// Put sets a key's document. Without a document and an error, the key is deleted. Documents are replaced, never modified,
// so callers may keep them. If the new document of a network, node, block or address is invalid, which the error says,
// the last valid one stays in effect: a typing error must not disconnect containers.
func (s *Snapshot) Put(key string, d Document, err error) {
	if err == nil {
		s.forget(key)
		s.add(key, d)
		return
	}
	kind, _, _ := strings.Cut(key, "/")
	switch kind + "/" {
	case NetworksPrefix, NodesPrefix, BlocksPrefix, AddressesPrefix:
	default:
		s.forget(key)
	}
	s.Problems[key] = err
}

func (s *Snapshot) add(key string, d Document) {
	switch d := d.(type) {
	case *Network:
		s.Networks[d.Name] = d
		if d.Name == DefaultNetwork {
			s.derive(s.NodeNames()...)
		}
	case *Node:
		s.Nodes[d.Name] = d
		s.derive(d.Name)
	case *Alive:
		s.Alive[d.Node] = true
	case *Block:
		if have := s.Blocks[key]; have != nil && have.OfNode {
			s.hidden[key] = d
			return
		}
		s.Blocks[key] = d
	case *Address:
		s.Addresses[key] = d
	case *Endpoint:
		s.Endpoints[key] = d
	case *FlannelLease:
		s.Flannel[key] = d
	case *FlannelConfig:
		s.FlannelConfig = d
	}
}

// derive sets the blocks that Kubernetes gave nodes. Nodes should not have the same podCIDR. If they do, all agents give it
// to the node whose name is the first.
func (s *Snapshot) derive(nodes ...string) {
	for _, node := range nodes {
		free := s.withdraw(node)
		n, network := s.Nodes[node], s.Networks[DefaultNetwork]
		if n != nil && network != nil {
			for _, p := range n.PodCIDRs {
				i := slices.IndexFunc(network.Subnets, func(x Subnet) bool {
					return x.Assign == AssignPodCIDR && x.CIDR.Contains(p.Addr()) && x.CIDR.Bits() <= p.Bits()
				})
				if i >= 0 {
					s.give(&Block{Network: DefaultNetwork, CIDR: p, Node: node, Subnet: network.Subnets[i].CIDR, OfNode: true})
				}
			}
		}
		for _, key := range free {
			s.giveToRival(key)
		}
	}
}

// withdraw takes the blocks from a node that Kubernetes gave it, and returns their keys.
func (s *Snapshot) withdraw(node string) (free []string) {
	for _, key := range s.ofNode[node] {
		if b := s.Blocks[key]; b != nil && b.OfNode && b.Node == node {
			delete(s.Blocks, key)
			if claimed := s.hidden[key]; claimed != nil {
				s.Blocks[key] = claimed
				delete(s.hidden, key)
			}
			free = append(free, key)
		}
	}
	delete(s.ofNode, node)
	for key := range s.rivals {
		s.setRival(key, node, false)
	}
	return free
}

// give gives a block to its node, unless Kubernetes gave it to another one, too. A block that a node claimed does not count.
func (s *Snapshot) give(b *Block) {
	key := b.Key()
	s.ofNode[b.Node] = append(s.ofNode[b.Node], key)
	switch have := s.Blocks[key]; {
	case have == nil:
	case !have.OfNode:
		s.hidden[key] = have
	case have.Node < b.Node:
		s.setRival(key, b.Node, true)
		return
	case have.Node > b.Node:
		s.setRival(key, have.Node, true)
	}
	s.Blocks[key] = b
}

// giveToRival gives a block without a node to the next node that has it as its podCIDR, if there is one.
func (s *Snapshot) giveToRival(key string) {
	if b, list := s.Blocks[key], s.rivals[key]; len(list) > 0 && (b == nil || !b.OfNode) {
		s.derive(list[0])
	}
}

func (s *Snapshot) setRival(key, node string, is bool) {
	i, known := slices.BinarySearch(s.rivals[key], node)
	switch {
	case is && !known:
		s.rivals[key] = slices.Insert(s.rivals[key], i, node)
	case !is && known:
		s.rivals[key] = slices.Delete(s.rivals[key], i, i+1)
	}
	if len(s.rivals[key]) == 0 {
		delete(s.rivals, key)
	}
}

// LostPodCIDRs returns those podCIDRs of a node that belong to another node, with that node, sorted.
func (s *Snapshot) LostPodCIDRs(node string) (out []*Block) {
	for _, key := range slices.Sorted(maps.Keys(s.rivals)) {
		if b := s.Blocks[key]; b != nil && slices.Contains(s.rivals[key], node) {
			out = append(out, b)
		}
	}
	return out
}

// OverlappingPodCIDRs returns other nodes' podCIDRs that are larger or smaller than one of a node and overlap with it, sorted.
func (s *Snapshot) OverlappingPodCIDRs(node string) (out []*Block) {
	n := s.Nodes[node]
	if n == nil || len(n.PodCIDRs) == 0 {
		return nil
	}
	for _, b := range s.Blocks {
		if b.OfNode && b.Node != node && slices.ContainsFunc(n.PodCIDRs, func(p netip.Prefix) bool { return p != b.CIDR && p.Overlaps(b.CIDR) }) {
			out = append(out, b)
		}
	}
	slices.SortFunc(out, func(a, b *Block) int { return a.CIDR.Compare(b.CIDR) })
	return out
}

// Documents returns all documents that agents follow, by key.
func (s *Snapshot) Documents() map[string]Document {
	list := make(map[string]Document, len(s.Networks)+len(s.Nodes)+len(s.Blocks)+len(s.Addresses)+len(s.Flannel)+1)
	for _, d := range s.Networks {
		list[d.Key()] = d
	}
	for _, d := range s.Nodes {
		list[d.Key()] = d
	}
	for key, d := range s.Blocks {
		if !d.OfNode {
			list[key] = d
		}
	}
	for key, d := range s.hidden {
		list[key] = d
	}
	for key, d := range s.Addresses {
		list[key] = d
	}
	for key, d := range s.Flannel {
		list[key] = d
	}
	if s.FlannelConfig != nil {
		list[FlannelConfigKey] = s.FlannelConfig
	}
	return list
}

// Keep takes the last valid documents from an earlier snapshot for keys that are invalid in this one.
func (s *Snapshot) Keep(earlier *Snapshot) {
	for key := range s.Problems {
		kind, name, _ := strings.Cut(key, "/")
		switch kind + "/" {
		case NetworksPrefix:
			take(s.Networks, earlier.Networks, name)
			s.derive(s.NodeNames()...)
		case NodesPrefix:
			take(s.Nodes, earlier.Nodes, name)
			s.derive(name)
		case BlocksPrefix:
			if b := cmp.Or(earlier.hidden[key], earlier.Blocks[key]); b != nil && !b.OfNode {
				s.add(key, b)
			}
		case AddressesPrefix:
			take(s.Addresses, earlier.Addresses, key)
		}
	}
}

func take[T any](into, from map[string]*T, key string) {
	if x := from[key]; x != nil {
		into[key] = x
	}
}

func (s *Snapshot) forget(key string) {
	kind, name, _ := strings.Cut(key, "/")
	switch kind + "/" {
	case NetworksPrefix:
		delete(s.Networks, name)
		if name == DefaultNetwork {
			s.derive(s.NodeNames()...)
		}
	case NodesPrefix:
		delete(s.Nodes, name)
		s.derive(name)
	case AlivePrefix:
		delete(s.Alive, name)
	case BlocksPrefix:
		if b := s.Blocks[key]; b != nil && !b.OfNode {
			delete(s.Blocks, key)
		}
		delete(s.hidden, key)
	case AddressesPrefix:
		delete(s.Addresses, key)
	case EndpointsPrefix:
		delete(s.Endpoints, key)
	case FlannelPrefix:
		delete(s.Flannel, key)
		if key == FlannelConfigKey {
			s.FlannelConfig = nil
		}
	}
	delete(s.Problems, key)
}

// BlocksOf returns a node's blocks of a network, sorted.
func (s *Snapshot) BlocksOf(network, node string) (out []netip.Prefix) {
	for _, b := range s.Blocks {
		if b.Network == network && b.Node == node {
			out = append(out, b.CIDR)
		}
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return out
}

// BlocksByNode returns the blocks of the existing networks by node, sorted by network and prefix. It replaces many calls of
// BlocksOf, each of which looks at all blocks.
func (s *Snapshot) BlocksByNode() map[string][]*Block {
	out := map[string][]*Block{}
	for _, b := range s.Blocks {
		if s.Networks[b.Network] != nil {
			out[b.Node] = append(out[b.Node], b)
		}
	}
	for _, list := range out {
		slices.SortFunc(list, func(a, b *Block) int { return cmp.Or(cmp.Compare(a.Network, b.Network), a.CIDR.Compare(b.CIDR)) })
	}
	return out
}

// NodeNames returns the names of all nodes, sorted.
func (s *Snapshot) NodeNames() []string { return slices.Sorted(maps.Keys(s.Nodes)) }
