// Package clustermap draws a map of a cluster: its hosts, networks, containers and the connections between hosts. It is a
// pure function of a snapshot of the store.
package clustermap

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/fairlead/fairlead/agent/backend"
	"github.com/fairlead/fairlead/agent/cluster"
)

// Map is the content of a cluster's map.
type Map struct {
	Networks []Network `json:"networks"`
	Nodes    []Node    `json:"nodes"`
	Tunnels  []Tunnel  `json:"tunnels"` // with more than maxTunnels pairs of nodes, only those that are not connected

	// Pairs counts all pairs of nodes by backend, for example "vxlan": 3.
	Pairs map[string]int `json:"pairs"`
}

// maxTunnels is the maximum number of listed pairs: 5,000 nodes have 12 million, which need gigabytes of memory.
const maxTunnels = 20_000

// Network is a network of the cluster.
type Network struct {
	Name     string   `json:"name"`
	Isolated bool     `json:"isolated"`
	VNI      int      `json:"vni,omitempty"`
	Subnets  []string `json:"subnets"`
	Peers    []string `json:"peers,omitempty"`
}

// Node is a host with its containers.
type Node struct {
	Name       string      `json:"name"`
	State      string      `json:"state"` // "alive" or "away"
	Addresses  []string    `json:"addresses"`
	Blocks     []string    `json:"blocks"`
	Containers []Container `json:"containers"` // nil: not known
}

// Container is a container's interface.
type Container struct {
	Name    string   `json:"name"`
	IfName  string   `json:"ifName"`
	Network string   `json:"network"`
	IPs     []string `json:"ips"`
}

// Tunnel describes how two nodes are connected in the default network.
type Tunnel struct {
	A     string `json:"a"`
	B     string `json:"b"`
	By    string `json:"by"`    // the backend's type; "": not connected
	State string `json:"state"` // "connected", "away", or why the nodes are not connected
}

// Named states of a tunnel.
const (
	Connected = "connected"
	Away      = "away" // the agent of one end does not report; the tunnel stays in place
)

// Of returns the map of a snapshot, sorted.
func Of(s *cluster.Snapshot) *Map {
	m := &Map{Networks: []Network{}, Nodes: []Node{}, Tunnels: []Tunnel{}, Pairs: map[string]int{}}
	for _, name := range sorted(s.Networks) {
		n := s.Networks[name]
		one := Network{Name: name, Isolated: n.Isolated, VNI: n.VNI, Peers: n.Peers, Subnets: []string{}}
		for _, x := range n.Subnets {
			one.Subnets = append(one.Subnets, x.CIDR.String())
		}
		m.Networks = append(m.Networks, one)
	}
	blocks := s.BlocksByNode()
	for _, name := range s.NodeNames() {
		m.Nodes = append(m.Nodes, nodeOf(s, s.Nodes[name], blocks[name]))
	}
	m.containers(s)
	m.join(s)
	return m
}

func nodeOf(s *cluster.Snapshot, n *cluster.Node, blocks []*cluster.Block) Node {
	out := Node{Name: n.Name, State: Away, Addresses: []string{}, Blocks: []string{}, Containers: []Container{}}
	if s.NoEndpoints {
		out.Containers = nil
	}
	if s.Alive[n.Name] {
		out.State = "alive"
	}
	for _, a := range n.Addresses {
		out.Addresses = append(out.Addresses, a.Addr().String())
	}
	for _, b := range blocks {
		out.Blocks = append(out.Blocks, b.CIDR.String())
	}
	return out
}

func (m *Map) containers(s *cluster.Snapshot) {
	at := map[string]int{}
	for i, n := range m.Nodes {
		at[n.Name] = i
	}
	for _, key := range sorted(s.Endpoints) {
		p := s.Endpoints[key]
		i, ok := at[p.Node]
		if !ok {
			continue
		}
		c := Container{Name: cmp.Or(p.Pod, p.Container), IfName: p.IfName, Network: p.Network, IPs: []string{}}
		for _, ip := range p.IPs {
			c.IPs = append(c.IPs, ip.String())
		}
		m.Nodes[i].Containers = append(m.Nodes[i].Containers, c)
	}
}

// join computes how each pair of nodes is connected.
func (m *Map) join(s *cluster.Snapshot) {
	n := s.Networks[cluster.DefaultNetwork]
	if n == nil {
		return
	}
	list, count := backend.Configured(n), len(m.Nodes)
	all := count*(count-1)/2 <= maxTunnels
	for i, a := range m.Nodes {
		for _, b := range m.Nodes[i+1:] {
			by, err := chosen(list, s.Nodes[a.Name], s.Nodes[b.Name])
			t := Tunnel{A: a.Name, B: b.Name, By: by, State: Connected}
			switch {
			case err != nil:
				t.State = err.Error()
			case a.State == Away || b.State == Away:
				t.State = Away
			}
			if len(m.Tunnels) < maxTunnels && (all || t.State != Connected) {
				m.Tunnels = append(m.Tunnels, t)
			}
			if err != nil && !all {
				t.State = "" // the reason names both nodes, so each pair would count on its own
			}
			m.Pairs[t.word()]++
		}
	}
}

// chosen returns how two nodes are connected, or an error if they are not.
func chosen(list []cluster.Backend, a, b *cluster.Node) (by string, _ error) {
	i, err := backend.Choose(list, a, b)
	if err != nil {
		return "", err
	}
	if list[i].Direct && backend.Direct(a, b) {
		return cluster.HostGW, nil
	}
	return list[i].Type, nil
}

// word describes a tunnel without its nodes.
func (t *Tunnel) word() string {
	switch t.State {
	case Connected:
		return t.By
	case "":
		return "not connected"
	}
	return fmt.Sprintf("%s (%s)", cmp.Or(t.By, "not connected"), t.State)
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
