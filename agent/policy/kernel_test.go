package policy_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/agent/policy"
	"github.com/fairlead/fairlead/agent/policy/policytest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/kerneltest/router"
	"github.com/fairlead/fairlead/kernel/nftable"
)

// known reports whether the namespace of an endpoint is known. If not, the evaluator takes it for one without labels, and
// the compiler drops everything.
func (n nodes) known(a netip.Addr) bool {
	e := n.w.EndpointOf(a)
	if e == nil {
		return true
	}
	_, known := n.w.Namespaces[e.Namespace]
	return known
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestKernel sends packets through the kernel with the tables of random worlds, and compares what arrives with the
// independent evaluator. All endpoints are on one node. The worlds change step by step, as in a cluster.
func TestKernel(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	host := router.New(t)
	const steps = 5
	for i := range rounds(t, 60) {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		w := policytest.OneNode(policytest.Random(r, policytest.Small), node0)
		c := policy.New(node0)
		move(r, c, &policy.World{}, w)
		table, _ := c.Table()
		_, err := host.Table.Sync(t.Context(), table)
		must(t, err)
		for step := range steps {
			compareKernel(t, host, r, w, table, fmt.Sprintf("seed %d, world %d, step %d", seed, i, step))
			next := policytest.OneNode(policytest.Mutate(r, w), node0)
			move(r, c, w, next)
			w = next
			var changes nftable.Changes
			table, changes = c.Table()
			found, err := host.Table.Apply(t.Context(), table, changes)
			must(t, err)
			if len(found) > 0 {
				t.Errorf("seed %d, world %d, step %d: the kernel had another table: %v", seed, i, step, found)
			}
		}
		read, err := host.Table.Read(t.Context(), table.Family, table.Name)
		must(t, err)
		if got, want := text(read), text(table); got != want {
			t.Fatalf("seed %d, world %d: read from the kernel\n%s", seed, i, kerneltest.Diff(want, got))
		}
	}
}

const node0 = "node0"

func compareKernel(t *testing.T, r *router.Router, random *rand.Rand, w *policy.World, table *nftable.Table, where string) {
	t.Helper()
	n := nodes{w: w}
	var list []router.Packet
	for range packetsPerWorld {
		p := policytest.Packet(random, w)
		if router.Sendable(p.Src) && router.Sendable(p.Dst) && !n.has(node0, p.Src) && !n.has(node0, p.Dst) && n.known(p.Src) && n.known(p.Dst) {
			list = append(list, router.Packet(p))
		}
	}
	passed := r.Send(list)
	for _, p := range list {
		if want := policytest.Decide(w, policy.Packet(p)); passed[p] != want.Allowed() {
			compiled, err := policy.Decide(table, policy.Packet(p))
			raw, _ := json.MarshalIndent(w, "", " ")
			t.Fatalf("%s: %+v: passed is %v, want %+v, compiled %+v (%v)\n%s\n%s", where, p, passed[p], want, compiled, err, raw, kerneltest.Run(t, "nft", "list", "ruleset"))
		}
	}
}
