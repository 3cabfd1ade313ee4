package policy_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	v1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/fairlead/fairlead/agent/policy"
	"github.com/fairlead/fairlead/agent/policy/policytest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/nftable"
)

const packetsPerWorld = 20

// nodes are the tables of all nodes of a world.
type nodes struct {
	w      *policy.World
	tables map[string]*nftable.Table
}

func compileAll(w *policy.World) nodes {
	n := nodes{w, map[string]*nftable.Table{}}
	for _, e := range w.Endpoints {
		if n.tables[e.Node] == nil {
			n.tables[e.Node] = policy.Compile(w, e.Node)
		}
	}
	return n
}

// allowed sends a packet through the tables of the nodes that forward it. A node does not forward its own packets.
func (n nodes) allowed(p policy.Packet) (bool, error) {
	for _, a := range []netip.Addr{p.Src, p.Dst} {
		node, ok := n.nodeOf(a)
		if !ok || n.has(node, p.Src) {
			continue
		}
		decide := policy.NewEvaluator(n.tables[node]).Decide
		if n.has(node, p.Dst) {
			decide = policy.NewEvaluator(n.tables[node]).DecideToNode
		}
		d, err := decide(p)
		if err != nil || !d.Allowed {
			return false, err
		}
	}
	return true, nil
}

// nodeOf returns the node of the endpoint with an address.
func (n nodes) nodeOf(a netip.Addr) (node string, ok bool) {
	for _, e := range n.w.Endpoints {
		if slices.Contains(e.Addresses, a) {
			return e.Node, true
		}
	}
	return "", false
}

func (n nodes) has(node string, a netip.Addr) bool {
	return slices.ContainsFunc(n.w.Nodes, func(x *policy.Node) bool { return x.Name == node && slices.Contains(x.Addresses, a) })
}

// rounds returns the number of random worlds: FAIRLEAD_POLICY_WORLDS, or some.
func rounds(t *testing.T, usual int) int {
	n, err := strconv.Atoi(os.Getenv("FAIRLEAD_POLICY_WORLDS"))
	if err != nil {
		return usual
	}
	t.Logf("%d worlds", n)
	return n
}

// TestRandomWorlds compares the compiled tables with the evaluator that was written from the APIs' documentation.
func TestRandomWorlds(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	for i := range rounds(t, 3000) {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		w := policytest.Random(r, policytest.Small)
		if i%5 == 0 {
			w = policytest.Break(r, w)
		}
		n := compileAll(w)
		for range packetsPerWorld {
			n.compare(t, policytest.Packet(r, w))
		}
		if t.Failed() {
			t.Fatalf("seed %d, world %d", seed, i)
		}
	}
}

func (n nodes) compare(t *testing.T, p policy.Packet) {
	t.Helper()
	want := policytest.Decide(n.w, p)
	got, err := n.allowed(p)
	if err != nil || got != want.Allowed() {
		raw, _ := json.MarshalIndent(n.w, "", " ")
		t.Errorf("%+v: allowed is %v (%v), want %+v\n%s", p, got, err, want, raw)
		for node, table := range n.tables {
			t.Logf("%s: %s", node, text(table))
		}
	}
}

// text returns a table in lines.
func text(table *nftable.Table) (out string) {
	for _, name := range slices.Sorted(maps.Keys(table.Sets)) {
		out += fmt.Sprintf("set %s %s %v\n", name, table.Sets[name].Type, table.Sets[name].Elements)
	}
	for _, name := range slices.Sorted(maps.Keys(table.Chains)) {
		out += "chain " + name + "\n"
		for _, rule := range table.Chains[name].Rules {
			out += "  " + rule.Text + "  # " + rule.Comment + "\n"
		}
	}
	return out
}

// TestChanges changes random worlds. After each change, a compiler that saw all changes has the table of a new one, its list
// of changes is complete, and it counts what each policy selects.
func TestChanges(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	for i := range rounds(t, 300) {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		w := policytest.Random(r, policytest.Small)
		node := w.Endpoints[0].Node
		c := policy.New(node)
		move(r, c, &policy.World{}, both(w, node))
		claims := map[string]*policy.Claim{}
		table, _ := c.Table()
		copied := clone(table)
		for step := range 10 {
			next := policytest.Mutate(r, w)
			changeClaims(r, c, claims, next)
			move(r, c, both(w, node), both(next, node))
			w = next
			table, changes := c.Table()
			replay(copied, table, changes)
			again := policy.New(node)
			move(r, again, &policy.World{}, both(w, node))
			for id, claim := range claims {
				again.SetClaim(id, claim)
			}
			fresh, _ := again.Table()
			want := text(fresh)
			if got := text(table); got != want {
				t.Fatalf("seed %d, world %d, step %d: the table differs:\n%s", seed, i, step, kerneltest.Diff(want, got))
			}
			if got := text(copied); got != want {
				t.Fatalf("seed %d, world %d, step %d: the changes give another table:\n%s", seed, i, step, kerneltest.Diff(want, got))
			}
			for _, s := range both(w, node).Selections() {
				if n := c.Selected(s.Policy); n != len(s.Endpoints) {
					t.Fatalf("seed %d, world %d, step %d: %s selects %d endpoints, not %v", seed, i, step, s.Policy, n, s.Endpoints)
				}
			}
		}
	}
}

// changeClaims changes the claim of one of three attachments in a third of its calls: for a pod of the world or for one
// that does not exist, of an address that a pod has or of another.
func changeClaims(r *rand.Rand, c *policy.Compiler, claims map[string]*policy.Claim, w *policy.World) {
	if len(w.Endpoints) == 0 || len(w.Nodes) == 0 {
		return
	}
	id := fmt.Sprint("attachment", r.IntN(3))
	switch r.IntN(6) {
	case 0:
		delete(claims, id)
		c.DeleteClaim(id)
	case 1:
		pod, other := w.Endpoints[r.IntN(len(w.Endpoints))], w.Endpoints[r.IntN(len(w.Endpoints))]
		claim := &policy.Claim{Namespace: pod.Namespace, Name: pod.Name, Addresses: slices.Clone(other.Addresses), Direct: r.IntN(3) == 0, Since: time.Duration(r.IntN(5))}
		for _, a := range claim.Addresses {
			if r.IntN(3) == 0 {
				claim.Bridged = append(claim.Bridged, netip.PrefixFrom(a, r.IntN(a.BitLen()+1)))
			}
		}
		switch r.IntN(4) {
		case 0:
			claim.Name = "unknown"
		case 1:
			claim.Addresses = append(claim.Addresses, netip.MustParseAddr("10.254.0.1"))
		case 2:
			claim.Addresses = append(claim.Addresses, w.Nodes[r.IntN(len(w.Nodes))].Addresses...)
		}
		claims[id] = claim
		c.SetClaim(id, claim)
	}
}

// both returns a world with one more endpoint on a node, which has addresses of both families: a compiler keeps the rules
// for a family after the last endpoint that has it.
func both(w *policy.World, node string) *policy.World {
	out := *w
	out.Endpoints = append(slices.Clone(w.Endpoints), &policy.Endpoint{
		Namespace: "stays", Name: "stays", Node: node, Addresses: []netip.Addr{netip.MustParseAddr("10.255.0.1"), netip.MustParseAddr("fd00:ffff::1")},
	})
	return &out
}

func clone(t *nftable.Table) *nftable.Table {
	out := nftable.New(t.Family, t.Name)
	all := nftable.Changes{Chains: map[string]bool{}, Sets: map[string]bool{}}
	for name := range t.Chains {
		all.Chains[name] = true
	}
	for name := range t.Sets {
		all.Sets[name] = true
	}
	replay(out, t, all)
	return out
}

// replay does to a copy what a programmer does to the kernel.
func replay(to, from *nftable.Table, changes nftable.Changes) {
	for name := range changes.Chains {
		delete(to.Chains, name)
		if c := from.Chains[name]; c != nil {
			to.Chains[name] = &nftable.Chain{Hook: c.Hook, Rules: slices.Clone(c.Rules)}
		}
	}
	for name := range changes.Sets {
		delete(to.Sets, name)
		if s := from.Sets[name]; s != nil {
			to.Sets[name] = &nftable.Set{Type: s.Type, Interval: s.Interval, Elements: maps.Clone(s.Elements)}
		}
	}
	for name, keys := range changes.Keys {
		for key := range keys {
			if value, exists := from.Sets[name].Elements[key]; exists {
				to.Sets[name].Elements[key] = value
			} else {
				delete(to.Sets[name].Elements, key)
			}
		}
	}
}

// move tells a compiler what differs between two worlds, in random order.
func move(r *rand.Rand, c *policy.Compiler, from, to *policy.World) {
	var steps []func()
	for name, labels := range to.Namespaces {
		if old, had := from.Namespaces[name]; !had || !maps.Equal(old, labels) {
			steps = append(steps, func() { c.SetNamespace(name, labels) })
		}
	}
	for name := range from.Namespaces {
		if _, has := to.Namespaces[name]; !has {
			steps = append(steps, func() { c.DeleteNamespace(name) })
		}
	}
	add := func(step func()) { steps = append(steps, step) }
	differences(from.Nodes, to.Nodes, func(n *policy.Node) string { return n.Name }, add, c.SetNode, func(n *policy.Node) { c.DeleteNode(n.Name) })
	differences(from.Endpoints, to.Endpoints, func(e *policy.Endpoint) string { return e.Namespace + "/" + e.Name }, add, c.SetEndpoint,
		func(e *policy.Endpoint) { c.DeleteEndpoint(e.Namespace, e.Name) })
	differences(from.Policies, to.Policies, func(p *networkingv1.NetworkPolicy) string { return p.Namespace + "/" + p.Name }, add, c.SetNetworkPolicy,
		func(p *networkingv1.NetworkPolicy) { c.DeletePolicy(policy.NetworkPolicyID(p.Namespace, p.Name)) })
	differences(from.ClusterPolicies, to.ClusterPolicies, func(p *v1alpha2.ClusterNetworkPolicy) string { return p.Name }, add, c.SetClusterPolicy,
		func(p *v1alpha2.ClusterNetworkPolicy) { c.DeletePolicy(policy.ClusterPolicyID(p.Name)) })
	if !slices.Equal(from.PodNetworks, to.PodNetworks) {
		add(func() { c.SetPodNetworks(to.PodNetworks) })
	}
	r.Shuffle(len(steps), func(i, j int) { steps[i], steps[j] = steps[j], steps[i] })
	for _, step := range steps {
		step()
	}
}

func differences[T any](from, to []*T, name func(*T) string, add func(func()), set, remove func(*T)) {
	old := map[string]*T{}
	for _, x := range from {
		old[name(x)] = x
	}
	for _, x := range to {
		if before := old[name(x)]; before == nil || !reflect.DeepEqual(before, x) {
			add(func() { set(x) })
		}
		delete(old, name(x))
	}
	for _, x := range old {
		add(func() { remove(x) })
	}
}

// TestNamespaceGoes deletes a namespace with its pods and policies, in every order that the API may deliver. The rest of the
// world is as if the namespace had never existed.
func TestNamespaceGoes(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	for i := range rounds(t, 200) {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		w := policytest.Random(r, policytest.Small)
		going := w.Endpoints[0].Namespace
		rest := *w
		rest.Namespaces = maps.Clone(w.Namespaces)
		delete(rest.Namespaces, going)
		rest.Endpoints = slices.DeleteFunc(slices.Clone(w.Endpoints), func(e *policy.Endpoint) bool { return e.Namespace == going })
		rest.Policies = slices.DeleteFunc(slices.Clone(w.Policies), func(p *networkingv1.NetworkPolicy) bool { return p.Namespace == going })
		node := w.Endpoints[0].Node
		c := policy.New(node)
		move(r, c, &policy.World{}, both(w, node))
		table, _ := c.Table()
		copied := clone(table)
		move(r, c, both(w, node), both(&rest, node))
		table, changes := c.Table()
		replay(copied, table, changes)
		want := text(policy.Compile(both(&rest, node), node))
		for name, have := range map[string]string{"table": text(table), "list of changes": text(copied)} {
			if have != want {
				t.Fatalf("seed %d, world %d: the %s differs:\n%s", seed, i, name, kerneltest.Diff(want, have))
			}
		}
	}
}
