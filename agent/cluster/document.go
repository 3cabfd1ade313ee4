package cluster

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// Document is one object of the cluster's desired state. Its type follows from its key.
type Document interface{ Key() string }

// Key returns the network's key.
func (n *Network) Key() string { return NetworkKey(n.Name) }

// Key returns the node's key.
func (n *Node) Key() string { return NodeKey(n.Name) }

// Key returns the block's key.
func (b *Block) Key() string { return BlockKey(b.Network, b.CIDR) }

// Key returns the address's key.
func (a *Address) Key() string { return AddressKey(a.Network, a.IP) }

// Key returns the endpoint's key.
func (e *Endpoint) Key() string { return EndpointKey(e.Node, e.Container, e.IfName) }

// Alive exists while a node's agent lives.
type Alive struct {
	Node string `json:"-"` // from the key
}

// Key returns the key that the node's agent holds.
func (a *Alive) Key() string { return AliveKey(a.Node) }

// Decode returns the document that a key and its value describe. It is nil, without an error, for a key that has no
// type here.
func Decode(key string, value []byte) (Document, error) {
	kind, name, _ := strings.Cut(key, "/")
	switch kind + "/" {
	case NetworksPrefix:
		n := &Network{Name: name}
		return valid(key, value, n, n.Validate)
	case NodesPrefix:
		n := &Node{Name: name}
		return valid(key, value, n, n.Validate)
	case AlivePrefix:
		return &Alive{name}, nil
	case BlocksPrefix:
		network, cidr, err := ParseBlockKey(key)
		if err != nil {
			return nil, err
		}
		b := &Block{Network: network, CIDR: cidr}
		return valid(key, value, b, func() error { return present(key, "node", b.Node) })
	case AddressesPrefix:
		network, ip, err := ParseAddressKey(key)
		if err != nil {
			return nil, err
		}
		a := &Address{Network: network, IP: ip}
		return valid(key, value, a, func() error { return present(key, "owner", a.Owner) })
	case EndpointsPrefix:
		f := strings.Split(key, "/")
		if len(f) != 4 {
			return nil, fmt.Errorf("key %q names no endpoint: want endpoints/NODE/CONTAINER/IFNAME", key)
		}
		return valid(key, value, &Endpoint{Node: f[1], Container: f[2], IfName: f[3]}, nil)
	case FlannelPrefix:
		return decodeFlannel(key, value)
	}
	return nil, nil
}

func decodeFlannel(key string, value []byte) (Document, error) {
	switch {
	case key == FlannelConfigKey:
		return &FlannelConfig{value}, nil
	case !strings.HasPrefix(key, flannelSubnets):
		return nil, nil
	}
	l, err := ParseFlannelLease(key, value)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// present returns an error if a field that every document has is absent.
func present(key, field, value string) error {
	if value == "" {
		return fmt.Errorf("read %s: it has no %s", key, field)
	}
	return nil
}

// valid decodes a value into a document and validates it. Into a null, a program decodes nothing, without an error.
func valid(key string, value []byte, d Document, validate func() error) (Document, error) {
	if string(bytes.TrimSpace(value)) == "null" {
		return nil, fmt.Errorf("read %s: it is null", key)
	}
	if err := json.Unmarshal(value, d); err != nil {
		var problem string // of a store that has no document for the key, but something else in its place
		if json.Unmarshal(value, &problem) == nil && problem != "" {
			return nil, fmt.Errorf("read %s: %s", key, problem)
		}
		return nil, fmt.Errorf("read %s: %w", key, err)
	}
	if validate != nil {
		if err := validate(); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// Encode returns a document's value in the store.
func Encode(d Document) ([]byte, error) {
	switch d := d.(type) {
	case *FlannelLease:
		return d.Value()
	case *FlannelConfig:
		return d.Text, nil
	}
	return json.Marshal(d)
}
