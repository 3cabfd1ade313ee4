package networkpolicyapi

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/policy"
	"github.com/fairlead/fairlead/agent/policy/policytest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/kerneltest/router"
)

// TestNetworkPolicyAPI compares the evaluator of package policytest, and the kernel with the compiled table, with the
// expectations of network-policy-api. In the kernel all pods are on one node.
func TestNetworkPolicyAPI(t *testing.T) {
	t.Parallel()
	kerneltest.OptIn(t, "FAIRLEAD_NETWORK_POLICY_API")
	for _, family := range []int{4, 6} {
		t.Run(fmt.Sprint("IPv", family), func(t *testing.T) {
			t.Parallel()
			cases, err := Cases(family)
			if err != nil {
				t.Fatal(err)
			}
			host := router.New(t)
			tests, protocols := map[string]bool{}, map[string]int{}
			var steps, denied int
			for _, c := range cases {
				test, _, _ := strings.Cut(c.Name, "/")
				tests[test] = true
				for i, s := range c.Steps {
					steps++
					protocols[s.Packet.Protocol]++
					if !s.Allowed {
						denied++
					}
					if d := policytest.Decide(s.World, s.Packet); d.Allowed() != s.Allowed {
						t.Errorf("%s, step %d, %s to %s %s %d: %+v, want %v", c.Name, i+1, s.From, s.To, s.Packet.Protocol, s.Packet.Port, d, s.Allowed)
					}
					if passed := forward(t, host, s); passed != s.Allowed {
						t.Errorf("%s, step %d, %s to %s %s %d: passed is %v, want %v", c.Name, i+1, s.From, s.To, s.Packet.Protocol, s.Packet.Port, passed, s.Allowed)
					}
				}
			}
			if len(tests) != 24 || len(cases) != 92 {
				t.Errorf("%d tests with %d subtests, want 24 with 92", len(tests), len(cases))
			}
			t.Logf("%d tests, %d subtests, %d connections %v: %d denied", len(tests), len(cases), steps, protocols, denied)
		})
	}
}

// forward reports whether a packet passes the kernel.
func forward(t *testing.T, host *router.Router, s Step) bool {
	t.Helper()
	const node = "node of all pods"
	if _, err := host.Table.Sync(t.Context(), policy.Compile(policytest.OneNode(s.World, node), node)); err != nil {
		t.Fatal(err)
	}
	p := router.Packet(s.Packet)
	return host.Send([]router.Packet{p})[p]
}
