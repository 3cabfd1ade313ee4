package cluster

import (
	"encoding/json"
	"fmt"
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
}

// NewSnapshot returns an empty snapshot.
func NewSnapshot() *Snapshot {
	return &Snapshot{
		Networks: map[string]*Network{}, Nodes: map[string]*Node{}, Alive: map[string]bool{}, Blocks: map[string]*Block{},
		Addresses: map[string]*Address{}, Endpoints: map[string]*Endpoint{}, Flannel: map[string]*FlannelLease{}, Problems: map[string]error{},
	}
}

// Set sets a key's value; nil means deleted. Documents are replaced, never modified, so callers may keep them. If the
// new document of a network, node, block or address is invalid, the last valid one stays in effect: a typing error must
// not disconnect containers.
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

// Keep takes the last valid documents from an earlier snapshot for keys that are invalid in this one.
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

// readLease ignores flannel's keys that are not leases, such as its configuration.
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
