package cluster

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// Snapshot is all of the store at one revision. What cannot be read is left out
// and said in Problems, so that one bad document stops nothing else.
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
}

// NewSnapshot is an empty one.
func NewSnapshot() *Snapshot {
	return &Snapshot{
		Networks: map[string]*Network{}, Nodes: map[string]*Node{}, Alive: map[string]bool{}, Blocks: map[string]*Block{},
		Addresses: map[string]*Address{}, Endpoints: map[string]*Endpoint{}, Flannel: map[string]*FlannelLease{}, Problems: map[string]error{},
	}
}

// Set takes a key's value, nil for one that was deleted. Documents are replaced,
// never changed: who holds one goes on holding what was. Of a network, a node, a block or
// an address whose document cannot be read any more, what it was goes on: a slip of
// somebody's hand is not to take away what containers use.
func (s *Snapshot) Set(key string, value []byte) {
	if value == nil {
		s.forget(key)
		return
	}
	err := s.read(key, value)
	if err == nil {
		delete(s.Problems, key)
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

// Keep takes from an earlier snapshot what this one cannot read.
func (s *Snapshot) Keep(earlier *Snapshot) {
	for key := range s.Problems {
		kind, name, _ := strings.Cut(key, "/")
		switch kind + "/" {
		case NetworksPrefix:
			take(s.Networks, earlier.Networks, name)
		case NodesPrefix:
			take(s.Nodes, earlier.Nodes, name)
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
	case NodesPrefix:
		delete(s.Nodes, name)
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
	}
	delete(s.Problems, key)
}

func (s *Snapshot) read(key string, value []byte) error {
	kind, name, _ := strings.Cut(key, "/")
	switch kind + "/" {
	case NetworksPrefix:
		n := &Network{Name: name}
		if err := decode(key, value, n); err != nil {
			return err
		}
		if err := n.Validate(); err != nil {
			return err
		}
		s.Networks[name] = n
	case NodesPrefix:
		n := &Node{Name: name}
		if err := decode(key, value, n); err != nil {
			return err
		}
		if err := n.Validate(); err != nil {
			return err
		}
		s.Nodes[name] = n
	case AlivePrefix:
		s.Alive[name] = true
	case BlocksPrefix:
		return s.readBlock(key, value)
	case AddressesPrefix:
		return s.readAddress(key, value)
	case EndpointsPrefix:
		return s.readEndpoint(key, value)
	case FlannelPrefix:
		return s.readLease(key, value)
	}
	return nil
}

func (s *Snapshot) readBlock(key string, value []byte) (err error) {
	b := &Block{}
	if b.Network, b.CIDR, err = parseBlockKey(key); err != nil {
		return err
	}
	if err := decode(key, value, b); err != nil {
		return err
	}
	s.Blocks[key] = b
	return nil
}

func (s *Snapshot) readAddress(key string, value []byte) (err error) {
	a := &Address{}
	if a.Network, a.IP, err = parseAddressKey(key); err != nil {
		return err
	}
	if err := decode(key, value, a); err != nil {
		return err
	}
	s.Addresses[key] = a
	return nil
}

func (s *Snapshot) readEndpoint(key string, value []byte) error {
	f := strings.Split(key, "/")
	if len(f) != 4 {
		return fmt.Errorf("key %q names no endpoint: want endpoints/NODE/CONTAINER/IFNAME", key)
	}
	p := &Endpoint{Node: f[1], Container: f[2], IfName: f[3]}
	if err := decode(key, value, p); err != nil {
		return err
	}
	s.Endpoints[key] = p
	return nil
}

// readLease leaves out what is beside flannel's subnets, its configuration.
func (s *Snapshot) readLease(key string, value []byte) error {
	if !strings.HasPrefix(key, flannelSubnets) {
		return nil
	}
	l, err := ParseFlannelLease(key, value)
	if err == nil {
		s.Flannel[key] = l
	}
	return err
}

func decode(key string, value []byte, into any) error {
	if err := json.Unmarshal(value, into); err != nil {
		return fmt.Errorf("read %s: %w", key, err)
	}
	return nil
}

// BlocksOf are the blocks of a network that belong to a node, in order.
func (s *Snapshot) BlocksOf(network, node string) (out []netip.Prefix) {
	for _, b := range s.Blocks {
		if b.Network == network && b.Node == node {
			out = append(out, b.CIDR)
		}
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return out
}

// NodeNames are the names of all nodes, in order.
func (s *Snapshot) NodeNames() []string { return slices.Sorted(maps.Keys(s.Nodes)) }
