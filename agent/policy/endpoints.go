package policy

import (
	"cmp"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// endpoints are all endpoints of the cluster, with indexes.
type endpoints struct {
	byKey       map[string]*Endpoint
	byNamespace map[string]map[string]bool
	byLabel     map[labelValue]map[string]bool
	byAddr      map[netip.Addr]map[string]bool
}

func newEndpoints() endpoints {
	return endpoints{map[string]*Endpoint{}, map[string]map[string]bool{}, map[labelValue]map[string]bool{}, map[netip.Addr]map[string]bool{}}
}

func (s *endpoints) add(key string, e *Endpoint) {
	s.byKey[key] = e
	include(s.byNamespace, e.Namespace, key)
	for label, value := range e.Labels {
		include(s.byLabel, labelValue{label, value}, key)
	}
	for _, a := range e.Addresses {
		include(s.byAddr, a, key)
	}
}

func (s *endpoints) remove(key string) {
	e := s.byKey[key]
	if e == nil {
		return
	}
	delete(s.byKey, key)
	exclude(s.byNamespace, e.Namespace, key)
	for label, value := range e.Labels {
		exclude(s.byLabel, labelValue{label, value}, key)
	}
	for _, a := range e.Addresses {
		exclude(s.byAddr, a, key)
	}
}

// owner returns the endpoint that has an address: the newest one that claims it. An address of a pod that is ending may
// belong to the next pod already. What a kubelet reports counts more than what ADD gave to an interface whose packets
// the node does not forward: such an interface must not change another pod's policy. An annotation counts least,
// because whoever creates a pod can write it.
func (s *endpoints) owner(a netip.Addr) (key string) {
	for other := range s.byAddr[a] {
		if key == "" || cmp.Or(s.rank(other, a)-s.rank(key, a), s.byKey[other].Created.Compare(s.byKey[key].Created), strings.Compare(other, key)) > 0 {
			key = other
		}
	}
	return key
}

func (s *endpoints) rank(key string, a netip.Addr) int {
	switch e := s.byKey[key]; {
	case slices.Contains(e.direct, a):
		return 1
	case slices.Contains(e.Announced[""], a):
		return 0
	}
	return 2
}

// Name returns the pod, NAMESPACE/NAME, and the node that have an address, "" for none. A pod with the node's network has
// no address of its own.
func (c *Compiler) Name(a netip.Addr) (pod, node string) {
	if !c.isNode(a) {
		return c.owner(a), ""
	}
	for name, n := range c.nodes {
		if slices.Contains(n.Addresses, a) && (node == "" || name < node) {
			node = name
		}
	}
	return "", node
}

// Endpoints returns all endpoints, sorted by name.
func (c *Compiler) Endpoints() []*Endpoint { return sortedValues(c.endpoints.byKey) }

// sharing returns the endpoints that claim one of these addresses.
func (s *endpoints) sharing(addrs []netip.Addr) map[string]bool {
	out := map[string]bool{}
	for _, a := range addrs {
		for key := range s.byAddr[a] {
			out[key] = true
		}
	}
	return out
}

// candidates returns a list of endpoints that contains all that a selector selects: those with a label that it requires, or
// those of the namespaces that it selects, whichever is shorter.
func (c *Compiler) candidates(p podSelector) iter.Seq[string] {
	list, size := maps.Keys(c.endpoints.byKey), len(c.endpoints.byKey)
	if v, ok := p.pods.equality(); ok {
		with := c.endpoints.byLabel[v]
		list, size = maps.Keys(with), len(with)
	}
	switch {
	case p.namespace != "":
		if in := c.endpoints.byNamespace[p.namespace]; len(in) < size {
			list = maps.Keys(in)
		}
	case len(p.namespaces) > 0:
		if names, total := c.namespacesOf(p.namespaces); total < size {
			list = c.inNamespaces(names)
		}
	}
	return list
}

// Selected returns the number of endpoints that a policy selects. It looks at all endpoints at most.
func (c *Compiler) Selected(id string) (n int) {
	p := c.policies[id]
	if p == nil {
		return 0
	}
	for key := range c.candidates(p.subject) {
		if c.selects(p, c.endpoints.byKey[key]) {
			n++
		}
	}
	return n
}

// namespacesOf returns the namespaces with some labels, and the number of their endpoints.
func (c *Compiler) namespacesOf(s labelSelector) (names []string, endpoints int) {
	for name, labels := range c.namespaces {
		if s.matches(labels) {
			names = append(names, name)
			endpoints += len(c.endpoints.byNamespace[name])
		}
	}
	return names, endpoints
}

func (c *Compiler) inNamespaces(names []string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, name := range names {
			for key := range c.endpoints.byNamespace[name] {
				if !yield(key) {
					return
				}
			}
		}
	}
}

func include[K, V comparable](m map[K]map[V]bool, key K, v V) {
	if m[key] == nil {
		m[key] = map[V]bool{}
	}
	m[key][v] = true
}

// exclude deletes an entry of an inner map, and the inner map with its last entry.
func exclude[K, V comparable, X any](m map[K]map[V]X, key K, v V) {
	delete(m[key], v)
	if len(m[key]) == 0 {
		delete(m, key)
	}
}
