package cyclonus

import (
	"fmt"
	"testing"

	"github.com/fairlead/fairlead/agent/policy"
	"github.com/fairlead/fairlead/agent/policy/policytest"
	"github.com/fairlead/fairlead/kernel/kerneltest/router"
)

// TestKernel sends the packet of each cell of Cyclonus' cases through the kernel, with the compiled table. All pods are on
// one node.
func TestKernel(t *testing.T) {
	t.Parallel()
	eachFamily(t, func(t *testing.T, cases []Case) {
		host := router.New(t)
		sent, steps := 0, 0
		for i, c := range cases {
			for j, s := range c.Steps {
				steps++
				sent += forward(t, host, fmt.Sprintf("case %d %q, step %d", i+1, c.Name, j+1), s)
			}
		}
		t.Logf("%d cases, %d steps, %d packets", len(cases), steps, sent)
	})
}

// forward sends the packets of a step, and returns their number.
func forward(t *testing.T, host *router.Router, where string, s Step) int {
	t.Helper()
	const node = "node"
	if _, err := host.Table.Sync(t.Context(), policy.Compile(policytest.OneNode(s.World, node), node)); err != nil {
		t.Fatalf("%s: %v", where, err)
	}
	var list []router.Packet
	for _, c := range s.Cells {
		list = append(list, router.Packet(c.Packet))
	}
	passed := host.Send(list)
	for _, c := range s.Cells {
		if passed[router.Packet(c.Packet)] != c.Allowed() {
			t.Errorf("%s, %s to %s %s %d: passed is %v, want %v", where, c.From, c.To, c.Packet.Protocol, c.Packet.Port, passed[router.Packet(c.Packet)], c.Allowed())
		}
	}
	return len(list)
}
