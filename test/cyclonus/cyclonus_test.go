package cyclonus

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/fairlead/fairlead/agent/policy/policytest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// counts counts what a comparison covered.
type counts struct {
	steps, cells, denied int
	itself, itselfDenied int
	protocols            map[string]int
}

// eachFamily runs a subtest for IPv4, and one for IPv6. FAIRLEAD_CYCLONUS=1 asks for all cases, and FAIRLEAD_CYCLONUS=N
// for every Nth one.
func eachFamily(t *testing.T, test func(t *testing.T, cases []Case)) {
	step, err := strconv.Atoi(kerneltest.OptIn(t, Variable))
	if err != nil || step < 1 {
		t.Fatalf("%s must be a positive number: %v", Variable, err)
	}
	for _, family := range []int{4, 6} {
		t.Run(fmt.Sprint("IPv", family), func(t *testing.T) {
			t.Parallel()
			cases, err := Cases(family, step)
			if err != nil {
				t.Fatal(err)
			}
			if want := (230 + step - 1) / step; len(cases) != want {
				t.Errorf("%d cases, want %d", len(cases), want)
			}
			test(t, cases)
		})
	}
}

// TestCyclonus compares the evaluator of package policytest with Cyclonus' matcher, for each direction of each cell.
func TestCyclonus(t *testing.T) {
	t.Parallel()
	eachFamily(t, func(t *testing.T, cases []Case) {
		n := counts{protocols: map[string]int{}}
		for i, c := range cases {
			for j, s := range c.Steps {
				n.compare(t, fmt.Sprintf("case %d %q, step %d", i+1, c.Name, j+1), s)
			}
		}
		t.Logf("%d cases, %d steps, %d cells %v: %d denied; %d from a pod to itself, of which Cyclonus denies %d",
			len(cases), n.steps, n.cells, n.protocols, n.denied, n.itself, n.itselfDenied)
	})
}

func (n *counts) compare(t *testing.T, where string, s Step) {
	n.steps++
	for _, c := range s.Cells {
		n.cells++
		n.protocols[c.Packet.Protocol]++
		d := policytest.Decide(s.World, c.Packet)
		if !d.Allowed() {
			n.denied++
		}
		if c.From == c.To {
			n.itself++
			if !c.Egress || !c.Ingress {
				n.itselfDenied++
			}
		} else if d.Egress.Allowed != c.Egress || d.Ingress.Allowed != c.Ingress {
			t.Errorf("%s, %s to %s %s %d: egress %v, ingress %v; here %+v",
				where, c.From, c.To, c.Packet.Protocol, c.Packet.Port, c.Egress, c.Ingress, d)
		}
		if d.Allowed() != c.Allowed() {
			t.Errorf("%s, %s to %s %s %d: allowed %v, want %v", where, c.From, c.To, c.Packet.Protocol, c.Packet.Port, d.Allowed(), c.Allowed())
		}
	}
}
