package policytest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/agent/policy"
)

// Size is the number of objects of a random world.
type Size struct{ Namespaces, Endpoints, Nodes, Policies, ClusterPolicies int }

// Small is a size with which policies decide about half of the packets. Failures are still readable.
var Small = Size{Namespaces: 3, Endpoints: 9, Nodes: 3, Policies: 4, ClusterPolicies: 3}

// generator makes random objects for a world. It uses few names, labels, ports and addresses, so that rules overlap and
// often match. All objects are valid.
type generator struct {
	*rand.Rand
	w *policy.World
}

// Random returns a random world. No two endpoints have the same address.
func Random(r *rand.Rand, size Size) *policy.World {
	g := generator{r, &policy.World{Namespaces: map[string]map[string]string{}}}
	for i := range size.Namespaces {
		name := fmt.Sprint("ns", i)
		g.w.Namespaces[name] = g.namespaceLabels(name)
	}
	for range size.Nodes {
		g.w.Nodes = append(g.w.Nodes, g.node())
	}
	for range size.Endpoints {
		g.w.Endpoints = append(g.w.Endpoints, g.endpoint())
	}
	for range size.Policies {
		g.w.Policies = append(g.w.Policies, g.networkPolicy())
	}
	for range size.ClusterPolicies {
		g.w.ClusterPolicies = append(g.w.ClusterPolicies, g.clusterPolicy())
	}
	g.w.PodNetworks = g.podNetworks()
	return g.w
}

// podNetworks returns networks with addresses of endpoints, of nodes, and of nobody.
func (g generator) podNetworks() (out []netip.Prefix) {
	for _, text := range []string{"10.0.1.0/27", "10.0.0.0/16", "fd00:0:0:1::/64", "fd01::/16", "203.0.113.0/31"} {
		if g.percent(25) {
			out = append(out, netip.MustParsePrefix(text))
		}
	}
	return out
}

func (g generator) percent(n int) bool { return g.IntN(100) < n }

// pick returns one of some values.
func pick[T any](g generator, values ...T) T { return values[g.IntN(len(values))] }

// list returns between least and most objects. Without objects, it returns nil or an empty list.
func list[T any](g generator, least, most int, object func() T) []T {
	n := least + g.IntN(most-least+1)
	if n == 0 && g.percent(50) {
		return nil
	}
	out := make([]T, n)
	for i := range out {
		out[i] = object()
	}
	return out
}

func (g generator) key() string      { return pick(g, "app", "team") }
func (g generator) value() string    { return pick(g, "a", "b", "") }
func (g generator) protocol() string { return pick(g, "TCP", "TCP", "TCP", "UDP", "SCTP") }
func (g generator) portName() string { return pick(g, "http", "web", "dns") }
func (g generator) port() uint16     { return pick[uint16](g, 1, 53, 80, 80, 81, 65534, 65535) }

func (g generator) labels() map[string]string {
	if g.percent(10) {
		return nil
	}
	out := map[string]string{}
	for range g.IntN(3) {
		out[g.key()] = g.value()
	}
	return out
}

func (g generator) namespaceLabels(name string) map[string]string {
	out := map[string]string{"kubernetes.io/metadata.name": name}
	maps.Copy(out, g.labels())
	return out
}

// namespace returns the name of a namespace.
func (g generator) namespace() string {
	if len(g.w.Namespaces) == 0 {
		return "ns0"
	}
	return pick(g, slices.Sorted(maps.Keys(g.w.Namespaces))...)
}

// fresh returns the first name with a prefix that is not used.
func fresh(prefix string, used func(string) bool) string {
	for i := 0; ; i++ {
		if name := fmt.Sprint(prefix, i); !used(name) {
			return name
		}
	}
}

func (g generator) node() *policy.Node {
	name := fresh("node", func(s string) bool {
		return slices.ContainsFunc(g.w.Nodes, func(n *policy.Node) bool { return n.Name == s })
	})
	n := &policy.Node{Name: name, Labels: g.labels()}
	n.Addresses = append(n.Addresses, g.unused("172.16.0.%d", "172.16.%d.%d"))
	if g.percent(70) {
		n.Addresses = append(n.Addresses, g.unused("fd01::%x", "fd01::%x:%x"))
	}
	return n
}

func (g generator) endpoint() *policy.Endpoint {
	e := &policy.Endpoint{Namespace: g.namespace(), Labels: g.labels(), Ports: g.ports()}
	e.Name = fresh("pod", func(s string) bool { // endpoints of several namespaces have the same name
		return slices.ContainsFunc(g.w.Endpoints, func(o *policy.Endpoint) bool { return o.Namespace == e.Namespace && o.Name == s })
	})
	if len(g.w.Nodes) > 0 && g.percent(95) {
		e.Node = pick(g, g.w.Nodes...).Name
	}
	e.Addresses = g.addresses()
	return e
}

func (g generator) ports() []policy.NamedPort {
	return list(g, 0, 3, func() policy.NamedPort {
		return policy.NamedPort{Name: g.portName(), Protocol: g.protocol(), Number: pick[uint16](g, 1, 53, 80, 81, 65535)}
	})
}

// addresses returns addresses of one or both families, in one or two networks.
func (g generator) addresses() []netip.Addr {
	family := g.IntN(4) // 0: IPv6 only, 1: IPv4 only, else both
	second := g.percent(25)
	var out []netip.Addr
	if family != 0 {
		out = append(out, g.unused("10.0.1.%d", "10.0.%d.%d"))
	}
	if family != 1 {
		out = append(out, g.unused("fd00:0:0:1::%x", "fd00:0:0:%x::%x"))
	}
	if second && family != 0 {
		out = append(out, g.unused("192.168.7.%d", "192.168.%d.%d"))
	}
	if second && family != 1 {
		out = append(out, g.unused("fd07::%x", "fd07::%x:%x"))
	}
	return out
}

// unused returns an address that no endpoint or node of the world has. It prefers a small range.
func (g generator) unused(small, large string) netip.Addr {
	used := g.used()
	for try := 0; ; try++ {
		a := netip.MustParseAddr(fmt.Sprintf(small, 1+g.IntN(30)))
		if try > 10 {
			a = netip.MustParseAddr(fmt.Sprintf(large, g.IntN(250), 1+g.IntN(250)))
		}
		if !slices.Contains(used, a) {
			return a
		}
	}
}

// used returns the addresses of all endpoints and nodes.
func (g generator) used() []netip.Addr {
	var out []netip.Addr
	for _, e := range g.w.Endpoints {
		out = append(out, e.Addresses...)
	}
	for _, n := range g.w.Nodes {
		out = append(out, n.Addresses...)
	}
	return out
}

// OneNode returns a world with all endpoints on one node. The last endpoint with an address becomes the newest one, which
// has the address.
func OneNode(w *policy.World, node string) *policy.World {
	out := *w
	out.Endpoints = nil
	for i, e := range w.Endpoints {
		moved := *e
		moved.Node, moved.Created = node, time.Unix(int64(i), 0)
		out.Endpoints = append(out.Endpoints, &moved)
	}
	return &out
}
