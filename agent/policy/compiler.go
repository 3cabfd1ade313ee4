package policy

import (
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	v1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/fairlead/fairlead/kernel/nftable"
)

// Compiler keeps the table of a node equal to a world that changes. A change costs time for what depends on it, and not
// for the rest of the world: a pod that joins is one element in each set that has it.
type Compiler struct {
	node    string
	network string   // isolated network whose table this is; "": that of the host
	peers   []string // isolated networks that it reaches
	noLog   bool     // dropped packets are not reported
	noIPVS  bool     // policy does not apply to packets of IPVS

	noMulticast bool // see updateMulticast

	namespaces  map[string]map[string]string // labels by name
	endpoints   endpoints
	nodes       map[string]*Node               // with podAddrs
	plainNodes  map[string]*Node               // without
	podAddrs    map[string][]netip.Addr        // addresses in pod networks, by node
	nodeAddrs   map[netip.Addr]map[string]bool // nodes by address
	podNetworks []addrRange                    // sorted
	policies    map[string]*rules              // by ID
	subjects    map[string]map[string]*rules   // policies by the namespace of their subject; "": others

	given   map[string]*Endpoint           // this node's endpoints without what is claimed for them, by endpoint
	claims  map[string]*Claim              // by attachment
	claimed map[netip.Addr]map[string]bool // the keys of claims, by address

	local      map[string]*profiles          // of this node's endpoints, by endpoint
	localIn    map[string]map[string]bool    // keys of local, by namespace
	families   [2]bool                       // that this node's endpoints have: IPv4, IPv6
	shared     map[string]*shared            // by name
	anchors    map[anchor]map[string]*shared // those with endpoints, by name
	nodeSets   map[string]*shared            // those with nodes, by name
	members    map[string]member             // of shared, by endpoint
	chainsWith map[string]map[string]bool    // names of chains, by the policies whose rules they contain
	batch      map[string]bool               // endpoints whose chains follow at the end of a Batch; nil: at once
	chains     map[string]*chain             // profiles and policies, by name

	table   *nftable.Table
	changes nftable.Changes
}

// New returns a compiler for a node whose world is empty.
func New(node string) *Compiler {
	c := &Compiler{
		node: node, namespaces: map[string]map[string]string{}, endpoints: newEndpoints(), nodes: map[string]*Node{}, nodeAddrs: map[netip.Addr]map[string]bool{}, nodeSets: map[string]*shared{},
		plainNodes: map[string]*Node{}, podAddrs: map[string][]netip.Addr{},
		given: map[string]*Endpoint{}, claims: map[string]*Claim{}, claimed: map[netip.Addr]map[string]bool{},
		policies: map[string]*rules{}, subjects: map[string]map[string]*rules{}, local: map[string]*profiles{}, localIn: map[string]map[string]bool{}, chainsWith: map[string]map[string]bool{},
		shared: map[string]*shared{}, anchors: map[anchor]map[string]*shared{}, members: map[string]member{}, chains: map[string]*chain{},
		table: nftable.New(TableFamily, TableName),
	}
	c.clearChanges()
	c.addBase()
	return c
}

// Compile returns the table of a node in a world. A world has no claims: the addresses that only a pod's annotation has
// count as if ADD had claimed them.
func Compile(w *World, node string) *nftable.Table {
	c := w.compiler(node)
	c.claimAnnounced()
	t, _ := c.Table()
	return t
}

func (w *World) compiler(node string) *Compiler {
	c := New(node)
	if w.network != "" {
		c = c.ForNetwork(w.network, w.peers[w.network])
	}
	c.Add(w)
	return c
}

// Add adds everything in a world.
func (c *Compiler) Add(w *World) { c.Batch(func() { c.add(w) }) }

func (c *Compiler) add(w *World) {
	for name, labels := range w.Namespaces {
		c.SetNamespace(name, labels)
	}
	c.SetPodNetworks(w.PodNetworks)
	for _, n := range w.Nodes {
		c.SetNode(n)
	}
	for _, e := range w.Endpoints {
		c.SetEndpoint(e)
	}
	for _, p := range w.Policies {
		c.SetNetworkPolicy(p)
	}
	for _, p := range w.ClusterPolicies {
		c.SetClusterPolicy(p)
	}
}

// Table returns the table and what has changed since the last call. The caller must not modify the table, and must not
// use it after the next change.
func (c *Compiler) Table() (*nftable.Table, nftable.Changes) {
	changes := c.changes
	c.clearChanges()
	return c.table, changes
}

// Pending reports whether something has changed since the last call of Table.
func (c *Compiler) Pending() bool { return !c.changes.Empty() }

// Evaluator returns an evaluator of the table, until the next change.
func (c *Compiler) Evaluator() *Evaluator { return NewEvaluator(c.table) }

func (c *Compiler) clearChanges() {
	c.changes = nftable.Changes{Chains: map[string]bool{}, Sets: map[string]bool{}, Keys: map[string]map[string]bool{}}
}

// SetNamespace adds a namespace or changes its labels.
func (c *Compiler) SetNamespace(name string, labels map[string]string) {
	if have, known := c.namespaces[name]; known && maps.Equal(have, labels) {
		return
	}
	c.namespaces[name] = maps.Clone(labels)
	c.namespaceChanged(name)
}

// AddNamespace adds a namespace that nobody has given labels, unless it is known.
func (c *Compiler) AddNamespace(name string) {
	if _, known := c.namespaces[name]; !known {
		c.SetNamespace(name, map[string]string{corev1.LabelMetadataName: name})
	}
}

// DeleteNamespace removes a namespace. Its pods and policies are deleted on their own.
func (c *Compiler) DeleteNamespace(name string) {
	delete(c.namespaces, name)
	c.namespaceChanged(name)
}

func (c *Compiler) namespaceChanged(name string) {
	for key := range c.endpoints.byNamespace[name] {
		c.endpointChanged(key)
	}
}

// EndpointKey names an endpoint.
func EndpointKey(namespace, name string) string { return namespace + "/" + name }

// SetEndpoint adds an endpoint or changes it.
func (c *Compiler) SetEndpoint(e *Endpoint) {
	key := EndpointKey(e.Namespace, e.Name)
	have := c.endpoints.byKey[key]
	if e.Node == c.node {
		have = c.given[key]
	}
	if now := c.inNetwork(e); have == nil || now == nil || !reflect.DeepEqual(have, now) { // mostly, only its status has changed
		c.replaceEndpoint(key, now)
	}
}

// DeleteEndpoint removes an endpoint.
func (c *Compiler) DeleteEndpoint(namespace, name string) {
	c.replaceEndpoint(EndpointKey(namespace, name), nil)
}

// replaceEndpoint takes an endpoint of inNetwork, or nil. It also updates the endpoints that have the same addresses:
// their owner may change.
func (c *Compiler) replaceEndpoint(key string, e *Endpoint) {
	delete(c.given, key)
	if e != nil && e.Node == c.node {
		c.given[key] = e
	}
	e = c.withClaims(e)
	var addrs []netip.Addr
	if old := c.endpoints.byKey[key]; old != nil {
		addrs = append(addrs, old.Addresses...)
	}
	c.endpoints.remove(key)
	if e != nil {
		c.endpoints.add(key, e)
		addrs = append(addrs, e.Addresses...)
		if e.Node == c.node {
			c.addFamilies(e.Addresses)
		}
	}
	c.endpointChanged(key)
	for other := range c.endpoints.sharing(addrs) {
		if other != key {
			c.endpointChanged(other)
		}
	}
	c.usedByPods(addrs)
}

// addFamilies writes rules for an address family once an endpoint of this node has it.
func (c *Compiler) addFamilies(addrs []netip.Addr) {
	have := c.families
	for _, a := range addrs {
		c.families[familyOf(a)] = true
	}
	if have == c.families {
		return
	}
	for _, ch := range sortedValues(c.chains) {
		c.fill(ch)
	}
}

// endpointChanged updates the sets that an endpoint is in, and its profiles if it is on this node.
func (c *Compiler) endpointChanged(key string) {
	e := c.endpoints.byKey[key]
	var addrs []netip.Addr
	if e != nil {
		for _, a := range e.Addresses {
			// A node's address never gets into a set of pods.
			if !c.isNode(a) && c.owner(a) == key && !slices.Contains(addrs, a) {
				addrs = append(addrs, a)
			}
		}
	}
	c.updateShared(key, e, addrs)
	if e != nil && e.Node != c.node {
		e = nil
	}
	c.updateLocal(key, e, c.enforced(e, addrs))
}

// SetNetworkPolicy adds a NetworkPolicy or changes it.
func (c *Compiler) SetNetworkPolicy(p *networkingv1.NetworkPolicy) {
	c.setPolicy(fromNetworkPolicy(p))
}

// SetClusterPolicy adds a ClusterNetworkPolicy or changes it.
func (c *Compiler) SetClusterPolicy(p *v1alpha2.ClusterNetworkPolicy) {
	c.setPolicy(fromClusterPolicy(p))
}

// HasPolicies reports whether there is a policy.
func (c *Compiler) HasPolicies() bool { return len(c.policies) > 0 }

// DeletePolicy removes a policy by its ID.
func (c *Compiler) DeletePolicy(id string) {
	old := c.policies[id]
	if old == nil {
		return
	}
	delete(c.policies, id)
	exclude(c.subjects, old.subject.namespace, id)
	c.policyChanged(old, nil)
}

func (c *Compiler) setPolicy(p *rules) {
	old := c.policies[p.id]
	if old != nil {
		exclude(c.subjects, old.subject.namespace, p.id)
	}
	c.policies[p.id] = p
	if c.subjects[p.subject.namespace] == nil {
		c.subjects[p.subject.namespace] = map[string]*rules{}
	}
	c.subjects[p.subject.namespace][p.id] = p
	c.policyChanged(old, p)
}

// policyChanged updates the profiles of this node's endpoints that a policy selects or selected, and the chains that
// contain its rules.
func (c *Compiler) policyChanged(old, now *rules) {
	touched := map[string]bool{}
	for _, p := range []*rules{old, now} {
		if p == nil {
			continue
		}
		if p.subject.namespace != "" {
			c.addSelected(touched, p, c.localIn[p.subject.namespace])
		} else {
			for _, keys := range c.localIn {
				c.addSelected(touched, p, keys)
			}
		}
	}
	c.updateProfiles(touched, now == nil)
	if now == nil {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(c.chainsWith[now.id])) {
		if ch := c.chains[name]; ch != nil {
			c.fill(ch)
		}
	}
}

// addSelected adds those of this node's endpoints that a policy selects.
func (c *Compiler) addSelected(to map[string]bool, p *rules, keys map[string]bool) {
	for key := range keys {
		if c.selects(p, c.local[key].endpoint) {
			to[key] = true
		}
	}
}

func (c *Compiler) selects(p *rules, e *Endpoint) bool {
	labels, known := c.namespaces[e.Namespace]
	return !p.noPods && p.subject.matches(e.Namespace, known, labels, e.Labels)
}

// selecting returns the policies that select an endpoint, in the order in which they apply.
func (c *Compiler) selecting(e *Endpoint) (out []*rules) {
	for _, group := range []map[string]*rules{c.subjects[""], c.subjects[e.Namespace]} {
		for _, p := range group {
			if c.selects(p, e) {
				out = append(out, p)
			}
		}
	}
	slices.SortFunc(out, compareRules)
	return out
}

func sortedValues[T any](m map[string]*T) (out []*T) {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		out = append(out, m[key])
	}
	return out
}

func familyOf(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

// ProblemsOf returns what is invalid in a policy.
func (c *Compiler) ProblemsOf(id string) (out []string) {
	if p := c.policies[id]; p != nil {
		for _, err := range p.problems {
			out = append(out, strings.ReplaceAll(err.Error(), "\n", "; "))
		}
	}
	return out
}

// Problems returns what is invalid in the policies, by policy.
func (c *Compiler) Problems() map[string][]string {
	out := map[string][]string{}
	for id, p := range c.policies {
		for _, err := range p.problems {
			out[id] = append(out[id], strings.TrimSpace(err.Error()))
		}
	}
	return out
}
