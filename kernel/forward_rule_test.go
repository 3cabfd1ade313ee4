package kernel_test

import (
	"slices"
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

// TestForwardDropChains lists iptables' chains of both variants. A host may accept by its policy and reject everything
// in its last rule.
func TestForwardDropChains(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args string
		want bool
	}{
		{"-P FORWARD ACCEPT", false},
		{"-P FORWARD DROP", true},
		{"-A FORWARD -j REJECT", true},
		{"-A FORWARD -s 192.0.2.1 -j DROP", true},
		{"-N OTHER; -A FORWARD -j OTHER", true},
		{"-A FORWARD -s 192.0.2.1 -j ACCEPT", false},
		{"-N CNI-FORWARD; -A FORWARD -j CNI-FORWARD; -N CNI-ADMIN", false},
		{"-N CNI-ADMIN; -A CNI-ADMIN -j DROP", true},
	} {
		for _, command := range []string{"iptables-nft", "iptables-legacy"} {
			t.Run(command+" "+c.args, func(t *testing.T) {
				kerneltest.Host(t)
				for args := range strings.SplitSeq(c.args, "; ") {
					kerneltest.Run(t, append([]string{command, "-w"}, strings.Fields(args)...)...)
				}
				var want []kernel.ForwardDropChain
				if c.want {
					want = []kernel.ForwardDropChain{{Family: "ip", Table: "filter", Chain: "FORWARD", Legacy: command == "iptables-legacy"}}
				}
				if got, err := open(t, "", kernel.Options{}).ForwardDropChains("CNI-ADMIN"); err != nil || !slices.Equal(got, want) {
					t.Errorf("got %v (%v), want %v", got, err, want)
				}
			})
		}
	}
}
