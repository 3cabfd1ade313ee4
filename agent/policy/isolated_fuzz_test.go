package policy_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/agent/policy"
	"github.com/fairlead/fairlead/agent/policy/policytest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// inBlue returns a world whose endpoints have their addresses in an isolated network, and in the host's networks those of
// other endpoints. The second world has them in the host's networks. Neither has an endpoint with the address of a node.
func inBlue(w *policy.World) (isolated, plain *policy.World) {
	a, b := *w, *w
	a.Endpoints, b.Endpoints = nil, nil
	for i, e := range w.Endpoints {
		there, here := *e, *e
		here.Addresses = slices.DeleteFunc(slices.Clone(e.Addresses), func(x netip.Addr) bool {
			return slices.ContainsFunc(w.Nodes, func(n *policy.Node) bool { return slices.Contains(n.Addresses, x) })
		})
		there.Addresses = w.Endpoints[(i+1)%len(w.Endpoints)].Addresses
		there.Isolated = map[string][]netip.Addr{"blue": here.Addresses, "red": w.Endpoints[(i+2)%len(w.Endpoints)].Addresses}
		a.Endpoints, b.Endpoints = append(a.Endpoints, &there), append(b.Endpoints, &here)
	}
	return &a, &b
}

// TestIsolatedChanges changes random worlds. The table of an isolated network is that of the host if the host's networks had
// the same addresses, whether its compiler saw all changes, or some of them, or is new. Claims in the host's networks do not
// change it.
func TestIsolatedChanges(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	for i := range rounds(t, 40) {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		w := policytest.Random(r, policytest.Small)
		node := w.Endpoints[0].Node
		host, claims, podAddrs := policy.New(node), map[string]*policy.Claim{}, map[string][]netip.Addr{}
		have, _ := inBlue(both(w, node))
		move(r, host, &policy.World{}, have)
		var blue []*policy.Compiler
		for step := range 8 {
			begun := host.ForNetwork("blue", nil)
			begun.SetPodNetworks(w.PodNetworks)
			blue = append(blue, begun)
			w = policytest.Mutate(r, w)
			next, plain := inBlue(both(w, node))
			of := fmt.Sprint("node", r.IntN(3))
			list := []netip.Addr{netip.AddrFrom4([4]byte{10, 254, 1, byte(r.IntN(3))})}[r.IntN(2):] // one, or none
			podAddrs[of] = list
			changeClaims(r, host, claims, w)
			for _, c := range append([]*policy.Compiler{host}, blue...) {
				move(r, c, have, next)
				c.SetPodAddresses(of, list)
			}
			have = next
			plain.Nodes = slices.Clone(plain.Nodes)
			plain.AddNodeAddresses(podAddrs)
			wanted := policy.Compile(plain, node)
			for number, c := range blue {
				table, _ := c.Table()
				if got, want := text(table), text(wanted); got != want {
					t.Fatalf("seed %d, world %d, step %d: the table of compiler %d differs:\n%s", seed, i, step, number, kerneltest.Diff(want, got))
				}
			}
		}
	}
}
