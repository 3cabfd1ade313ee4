package policy

import (
	"cmp"
	"net/netip"
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
// belong to the next pod already.
func (s *endpoints) owner(a netip.Addr) (key string) {
	for other := range s.byAddr[a] {
		if key == "" || cmp.Or(s.byKey[other].Created.Compare(s.byKey[key].Created), strings.Compare(other, key)) > 0 {
			key = other
		}
	}
	return key
}

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

// candidates returns endpoints of which a selector may select some, and that contain all that it selects.
func (s *endpoints) candidates(p podSelector) (keys map[string]bool, all bool) {
	keys, all = nil, true
	if p.namespace != "" {
		keys, all = s.byNamespace[p.namespace], false
	}
	if v, ok := p.pods.equality(); ok {
		if with := s.byLabel[v]; all || len(with) < len(keys) {
			keys, all = with, false
		}
	}
	return keys, all
}

func include[K, V comparable](m map[K]map[V]bool, key K, v V) {
	if m[key] == nil {
		m[key] = map[V]bool{}
	}
	m[key][v] = true
}

func exclude[K, V comparable](m map[K]map[V]bool, key K, v V) {
	delete(m[key], v)
	if len(m[key]) == 0 {
		delete(m, key)
	}
}
