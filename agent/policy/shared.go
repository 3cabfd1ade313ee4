package policy

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/kernel/nftable"
)

// shared is something that rules match by sets: the pods of a selector, the nodes of a selector, ports, address ranges.
// Rules with the same selector share it. It exists while a chain uses it.
type shared struct {
	name string
	refs int // of chains

	types  [2]string // of its set in each family, or one type for both; "": no such set
	static bool      // its elements never change

	anchor   anchor // finds the endpoints that it may select
	matches  func(key string, e *Endpoint) bool
	elements func(e *Endpoint, a netip.Addr) []string // for an address of an endpoint
	nodes    labelSelector                            // of nodes, in Compiler.nodeSets

	members map[string]bool   // endpoints
	counts  [2]map[string]int // how many endpoints have an element: an address may be used again
}

// anchor is a condition that every endpoint of a selector meets: a namespace or a label. The zero anchor is met by all.
type anchor struct {
	namespace string
	label     labelValue
}

func (s podSelector) anchor() anchor {
	if v, ok := s.pods.equality(); ok {
		return anchor{label: v}
	}
	return anchor{namespace: s.namespace}
}

// hash returns a name for a text. Equal texts have equal names on every node. Users choose the texts, so nobody may find a
// second text for a name: 96 bits of SHA-256.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:12])
}

var addrTypes = [2]string{"ipv4_addr", "ipv6_addr"}

// podSet returns the addresses of the pods of a selector.
func (c *Compiler) podSet(s podSelector) *shared {
	return c.sharedNamed("pods-"+hash(s.key()), func(x *shared) {
		x.types, x.anchor = addrTypes, s.anchor()
		x.matches = func(_ string, e *Endpoint) bool {
			labels, known := c.namespaces[e.Namespace]
			return s.matches(e.Namespace, known, labels, e.Labels)
		}
		x.elements = func(_ *Endpoint, a netip.Addr) []string { return []string{a.String()} }
		for key := range c.candidates(s) {
			c.join(x, key)
		}
	})
}

// namedPortSet returns the ports of some names: address, protocol and number, for each endpoint that has one.
func (c *Compiler) namedPortSet(list []namedPort) *shared {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b namedPort) int {
		return cmp.Or(cmp.Compare(a.protocol, b.protocol), cmp.Compare(a.name, b.name))
	})
	list = slices.Compact(list)
	of := func(e *Endpoint) (out []portRange) {
		for _, n := range list {
			out = append(out, n.of(e)...)
		}
		return out
	}
	return c.sharedNamed("port-"+hash(fmt.Sprintf("%q", list)), func(x *shared) {
		x.types = [2]string{"ipv4_addr . inet_proto . inet_service", "ipv6_addr . inet_proto . inet_service"}
		x.matches = func(_ string, e *Endpoint) bool { return len(of(e)) > 0 }
		x.elements = func(e *Endpoint, a netip.Addr) (out []string) {
			for _, p := range of(e) {
				out = append(out, a.String()+" . "+p.String())
			}
			return out
		}
		for key := range c.endpoints.byKey {
			c.join(x, key)
		}
	})
}

// of returns the numbers that an endpoint has for a port's name.
func (n namedPort) of(e *Endpoint) (out []portRange) {
	for _, p := range e.Ports {
		protocol, err := protocolName(p.Protocol)
		if err == nil && p.Name == n.name && (n.protocol == "" || n.protocol == protocol) {
			out = append(out, portRange{protocol, p.Number, p.Number})
		}
	}
	return out
}

// nodeSet returns the addresses of the nodes of a selector.
func (c *Compiler) nodeSet(s labelSelector) *shared {
	return c.sharedNamed("nodes-"+hash(s.key()), func(x *shared) {
		x.types, x.nodes = addrTypes, s
		c.nodeSets[x.name] = x
		for f, typ := range x.types {
			c.set(x.set(f), typ, false)
		}
		for a := range c.nodeAddrs {
			c.placeNodeAddr(x, a)
		}
	})
}

// blockSet returns ranges of addresses.
func (c *Compiler) blockSet(list []addrRange) *shared {
	list = mergeAddrs(slices.Clone(list))
	return c.sharedNamed("block-"+hash(fmt.Sprint(list)), func(x *shared) {
		x.types, x.static = addrTypes, true
		for _, r := range list {
			c.addElement(x, familyOf(r.first), r.String())
		}
	})
}

// portSet returns ranges of ports.
func (c *Compiler) portSet(list []portRange) *shared {
	return c.sharedNamed("ports-"+hash(fmt.Sprint(list)), func(x *shared) {
		x.types, x.static = [2]string{"inet_proto . inet_service"}, true
		for _, r := range list {
			c.addElement(x, 0, r.String())
		}
	})
}

// sharedNamed returns what has a name, and creates it with its sets if necessary.
func (c *Compiler) sharedNamed(name string, create func(*shared)) *shared {
	x := c.shared[name]
	if x != nil {
		return x
	}
	x = &shared{name: name, members: map[string]bool{}, counts: [2]map[string]int{{}, {}}}
	c.shared[name] = x
	create(x)
	for f, typ := range x.types {
		if typ != "" {
			c.set(x.set(f), typ, x.static)
		}
	}
	if x.matches != nil {
		if c.anchors[x.anchor] == nil {
			c.anchors[x.anchor] = map[string]*shared{}
		}
		c.anchors[x.anchor][name] = x
	}
	return x
}

// set returns the name of the set for a family, 0 for IPv4.
func (x *shared) set(family int) string {
	if x.types[1] == "" {
		return x.name
	}
	return x.name + [2]string{"-4", "-6"}[family]
}

// drop ends one use. Without uses, the sets are deleted.
func (c *Compiler) drop(name string) {
	x := c.shared[name]
	if x.refs--; x.refs > 0 {
		return
	}
	delete(c.shared, name)
	delete(c.nodeSets, name)
	exclude(c.anchors, x.anchor, name)
	for key := range x.members {
		delete(c.members[key].sets, name)
	}
	for f, typ := range x.types {
		if typ != "" {
			delete(c.table.Sets, x.set(f))
			c.setChanged(x.set(f))
		}
	}
}

// set adds a set to the table if it has none.
func (c *Compiler) set(name, typ string, interval bool) *nftable.Set {
	s := c.table.Sets[name]
	if s == nil {
		s = &nftable.Set{Type: typ, Interval: interval, Elements: map[string]string{}}
		c.table.Sets[name] = s
		c.setChanged(name)
	}
	return s
}

// setChanged notes that a whole set is new or gone.
func (c *Compiler) setChanged(name string) {
	c.changes.Sets[name] = true
	delete(c.changes.Keys, name)
}

// setKey writes an element of a set or map.
func (c *Compiler) setKey(set, key, value string) {
	s := c.table.Sets[set]
	if have, exists := s.Elements[key]; exists && have == value {
		return
	}
	s.Elements[key] = value
	c.keyChanged(set, key)
}

func (c *Compiler) deleteKey(set, key string) {
	if _, exists := c.table.Sets[set].Elements[key]; exists {
		delete(c.table.Sets[set].Elements, key)
		c.keyChanged(set, key)
	}
}

func (c *Compiler) keyChanged(set, key string) {
	if !c.changes.Sets[set] {
		include(c.changes.Keys, set, key)
	}
}

func (c *Compiler) addElement(x *shared, family int, key string) {
	if x.counts[family][key]++; x.counts[family][key] == 1 {
		c.set(x.set(family), x.types[family], x.static)
		c.setKey(x.set(family), key, "")
	}
}

func (c *Compiler) removeElement(x *shared, family int, key string) {
	if x.counts[family][key]--; x.counts[family][key] == 0 {
		delete(x.counts[family], key)
		c.deleteKey(x.set(family), key)
	}
}

// updateShared moves an endpoint to the sets that it now belongs to. e is nil if it has gone.
func (c *Compiler) updateShared(key string, e *Endpoint, addrs []netip.Addr) {
	now := map[string]bool{}
	if e != nil {
		for _, x := range c.mayMatch(e) {
			if x.matches(key, e) {
				now[x.name] = true
			}
		}
	}
	before := c.members[key]
	if e != nil {
		c.members[key] = member{e, slices.Clone(addrs), now}
	} else {
		delete(c.members, key)
	}
	for name := range now { // first: an element that stays does not change
		c.enter(c.shared[name], key)
	}
	for name := range before.sets {
		x := c.shared[name]
		before.each(x, func(family int, element string) { c.removeElement(x, family, element) })
		if !now[name] {
			delete(x.members, key)
		}
	}
}

// mayMatch returns the shared sets whose anchor an endpoint meets.
func (c *Compiler) mayMatch(e *Endpoint) (out []*shared) {
	for _, x := range c.anchors[anchor{}] {
		out = append(out, x)
	}
	for _, x := range c.anchors[anchor{namespace: e.Namespace}] {
		out = append(out, x)
	}
	for label, value := range e.Labels {
		for _, x := range c.anchors[anchor{label: labelValue{label, value}}] {
			out = append(out, x)
		}
	}
	return out
}

// member is an endpoint as the sets have it.
type member struct {
	endpoint *Endpoint
	addrs    []netip.Addr
	sets     map[string]bool // names of the shared sets that have it
}

// join adds an endpoint to a new set if it matches.
func (c *Compiler) join(x *shared, key string) {
	if m, ok := c.members[key]; ok && x.matches(key, m.endpoint) {
		m.sets[x.name] = true
		c.enter(x, key)
	}
}

func (c *Compiler) enter(x *shared, key string) {
	x.members[key] = true
	c.members[key].each(x, func(family int, element string) { c.addElement(x, family, element) })
}

func (m member) each(x *shared, do func(family int, element string)) {
	for _, a := range m.addrs {
		for _, element := range x.elements(m.endpoint, a) {
			do(familyOf(a), element)
		}
	}
}
