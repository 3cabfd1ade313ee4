package nftable_test

import (
	"testing"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestAccepts tries rules that every kernel has, and one that no kernel has: there is no FIB lookup for ARP.
func TestAccepts(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	before := kerneltest.Dump(t, "")
	p := open(t)
	for _, c := range []struct {
		family, rule string
		want         bool
	}{
		{"inet", `limit rate over 10/second burst 20 packets log prefix "x" group 7 drop`, true},
		{"arp", "counter drop", true},
		{"arp", "fib daddr type local drop", false},
	} {
		if got, err := p.Accepts(t.Context(), c.family, "try", c.rule); got != c.want || err != nil {
			t.Errorf("%s: %q is accepted: %v (%v), want %v", c.family, c.rule, got, err, c.want)
		}
	}
	if _, err := p.Accepts(t.Context(), "inet", "try", "no rule"); err == nil {
		t.Error("text that is no rule: no error")
	}
	if d := kerneltest.Diff(before, kerneltest.Dump(t, "")); d != "" {
		t.Errorf("it left\n%s", d)
	}
}
