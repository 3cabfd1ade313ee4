package cluster

import (
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

	ofNode map[string][]string // keys of the blocks that Kubernetes gave a node, see derive
}

// NewSnapshot returns an empty snapshot.
func NewSnapshot() *Snapshot {
	return &Snapshot{
		Networks: map[string]*Network{}, Nodes: map[string]*Node{}, Alive: map[string]bool{}, Blocks: map[string]*Block{},
		Addresses: map[string]*Address{}, Endpoints: map[string]*Endpoint{}, Flannel: map[string]*FlannelLease{}, Problems: map[string]error{}, ofNode: map[string][]string{},
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

// derive sets the blocks that Kubernetes gave nodes.
func (s *Snapshot) derive(nodes ...string) {
	for _, node := range nodes {
		for _, key := range s.ofNode[node] {
			if b := s.Blocks[key]; b != nil && b.OfNode && b.Node == node {
				delete(s.Blocks, key)
			}
		}
		delete(s.ofNode, node)
		n, network := s.Nodes[node], s.Networks[DefaultNetwork]
		if n == nil || network == nil {
			continue
		}
		for _, p := range n.PodCIDRs {
			i := slices.IndexFunc(network.Subnets, func(x Subnet) bool { return x.Assign == AssignPodCIDR && x.CIDR.Contains(p.Addr()) })
			key := BlockKey(DefaultNetwork, p)
			if i >= 0 && s.Blocks[key] == nil {
				s.Blocks[key] = &Block{Network: DefaultNetwork, CIDR: p, Node: node, Subnet: network.Subnets[i].CIDR, OfNode: true}
				s.ofNode[node] = append(s.ofNode[node], key)
			}
		}
	}
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
			take(s.Blocks, earlier.Blocks, key)
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
		delete(s.Blocks, key)
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

// NodeNames returns the names of all nodes, sorted.
func (s *Snapshot) NodeNames() []string { return slices.Sorted(maps.Keys(s.Nodes)) }
