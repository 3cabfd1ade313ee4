package kernel_test

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestForwardRulesOfSeveralAddresses checks that the rules for one address of an owner do not pass for the rules for
// another one: not in ADD, CHECK or repair.
func TestForwardRulesOfSeveralAddresses(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	kerneltest.Run(t, "nft", "add table inet mine { chain passing { type filter hook forward priority 0; policy drop; }; }")
	e := open(t, "", kernel.Options{})
	var list kernel.Objects
	for _, a := range []string{"10.1.0.2", "10.1.1.2", "fd01::2"} {
		list = append(list, &kernel.ForwardRule{Family: "inet", Table: "mine", Chain: "passing", Addr: a, V6: strings.Contains(a, ":"), OwnerTag: owner.Tag()})
	}
	rules := func() int {
		return strings.Count(kerneltest.Run(t, "nft", "list", "table", "inet", "mine"), "comment")
	}
	if err := e.Apply(list); err != nil || rules() != 9 {
		t.Fatalf("ADD: %v, %d rules, want 9", err, rules())
	}
	for _, change := range []string{
		"flush chain inet mine passing",
		"flush chain inet mine passing; add rule inet mine passing ip saddr 10.1.0.2 accept comment \"" + owner.Tag() + "\"",
	} {
		kerneltest.Run(t, "nft", change)
		if d, err := e.Compare(list); err != nil || len(d) != 3 {
			t.Errorf("%s: CHECK reports %v (%v), want 3 differences", change, d, err)
		}
		if _, err := e.Repair(list); err != nil {
			t.Fatal(err)
		}
		if d, err := e.Compare(list); err != nil || len(d) > 0 || rules() != 9 {
			t.Errorf("%s: after a repair: %v (%v), %d rules, want 9", change, d, err, rules())
		}
	}
	if err := e.Remove(list); err != nil || rules() != 0 {
		t.Errorf("DEL: %v, %d rules, want 0", err, rules())
	}
}
