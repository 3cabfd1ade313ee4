package nftable_test

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/nftable"
)

// damages are commands of nft that change the table of function everything. TABLE is its name.
var damages = []string{
	"delete table TABLE",
	"flush ruleset",
	"flush table TABLE",
	"flush chain TABLE profile",
	"flush chain TABLE forward",
	"add rule TABLE profile ip saddr 10.9.9.9 accept",
	"insert rule TABLE forward accept",
	"insert rule TABLE forward tcp dport { 22, 80 } accept",
	"add rule TABLE empty ip saddr vmap { 10.9.9.9 : jump profile }",
	"add chain TABLE input { type filter hook input priority 0; policy drop; }",
	"add chain TABLE extra ; add rule TABLE extra jump profile ; add rule TABLE empty jump extra",
	"add chain TABLE forward { policy drop; }",
	"flush chain TABLE output ; delete chain TABLE output",
	"flush chain TABLE output ; delete chain TABLE output ; add chain TABLE output { type filter hook input priority 5; }",
	"flush chain TABLE output ; add rule TABLE output oifname @links accept comment \"another\"",
	"add set TABLE more { type ipv4_addr; elements = { 10.9.9.9 }; } ; add rule TABLE forward ip saddr @more accept",
	"add map TABLE more2 { type ipv4_addr : verdict; } ; add element TABLE more2 { 10.9.9.9 : jump profile }",
	"add element TABLE pods4 { 10.9.9.9 }",
	"delete element TABLE pods4 { 10.1.0.5 }",
	"delete element TABLE pods4 { 10.1.0.5 } ; add element TABLE pods4 { 10.1.0.5 comment \"mine\" }",
	"flush set TABLE pods6",
	"add element TABLE blocks4 { 10.64.0.0/10 }",
	"add element TABLE blocks4 { 10.0.1.10-10.0.1.20 }",
	"add element TABLE none4 { 0.0.0.0/8 }",
	"delete element TABLE high4 { 128.0.0.0/1 } ; add element TABLE high4 { 128.0.0.0/2 }",
	"delete element TABLE blocks6 { fd00::/120 }",
	"add element TABLE ports { tcp . 1-79 }",
	"delete element TABLE ports { udp . 53 }",
	"add element TABLE egress4 { 10.9.9.9 : accept }",
	"delete element TABLE egress4 { 10.1.0.5 } ; add element TABLE egress4 { 10.1.0.5 : accept }",
	"flush map TABLE egress6",
	"flush chain TABLE forward ; delete map TABLE egress4 ; add map TABLE egress4 { type ipv4_addr : verdict; flags interval; }",
	"flush chain TABLE profile ; delete set TABLE named4 ; add set TABLE named4 { type ipv4_addr . inet_proto . inet_service; flags dynamic; }",
	"flush chain TABLE dropped ; add rule TABLE dropped counter ; add rule TABLE dropped counter limit rate over 10/second burst 20 packets drop",
	"insert rule TABLE dropped limit rate 10/second burst 20 packets drop",
	"add table TABLE { flags dormant; }",
}

// TestSyncRepairsDamage runs commands of nft on the table, each alone and then several at random. Sync reports a
// difference exactly if there is one, and the table is then as it was.
func TestSyncRepairsDamage(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	want := everything()
	p := open(t)
	sync(t, p, want)
	before := listed(t, "", want)
	for _, d := range damages {
		if !damaged(t, want, d) {
			t.Errorf("nft refuses %s", d)
		}
		checkRepair(t, p, want, before, d)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range rounds(20) {
		var done []string
		for range 1 + r.IntN(4) {
			if d := damages[r.IntN(len(damages))]; damaged(t, want, d) {
				done = append(done, d)
			}
		}
		checkRepair(t, p, want, before, strings.Join(done, "\n"))
	}
}

// damaged runs a command and reports whether nft accepted it. After another damage it may refuse.
func damaged(t *testing.T, table *nftable.Table, command string) bool {
	t.Helper()
	kerneltest.Run(t, "nft", "list", "tables") // fails outside a test's host
	return exec.Command("nft", strings.ReplaceAll(command, "TABLE", table.Family+" "+table.Name)).Run() == nil
}

func checkRepair(t *testing.T, p *nftable.Programmer, want *nftable.Table, before, what string) {
	t.Helper()
	found := sync(t, p, want)
	if len(found) == 0 && what != "" {
		t.Errorf("Sync finds nothing after\n%s", what)
	}
	if d := kerneltest.Diff(before, listed(t, "", want)); d != "" {
		t.Errorf("after\n%s\nSync found %q, and now differs:\n%s", what, found, d)
	}
	if again := sync(t, p, want); again != nil {
		t.Errorf("after\n%s\nthe second Sync found %q", what, again)
	}
}

// TestApplyAfterDamage checks that a change succeeds when somebody else has changed what it needs, and that Apply
// reports that.
func TestApplyAfterDamage(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	for _, d := range []string{
		"delete table TABLE",                        // nothing exists
		"delete element TABLE pods4 { 10.1.0.6 }",   // what the change deletes
		"insert rule TABLE profile jump disposable", // who uses what the change deletes
		"flush chain TABLE forward ; flush map TABLE egress4 ; delete map TABLE egress4",
	} {
		want := everything()
		want.Chains["disposable"] = &nftable.Chain{Rules: []nftable.Rule{{Text: "drop"}}}
		want.Sets["egress4"].Elements["10.1.0.8"] = "goto disposable"
		p := open(t)
		sync(t, p, want)
		if !damaged(t, want, d) {
			t.Fatalf("nft refuses %s", d)
		}
		delete(want.Chains, "disposable")
		delete(want.Sets["pods4"].Elements, "10.1.0.6")
		delete(want.Sets["egress4"].Elements, "10.1.0.8")
		found, err := p.Apply(t.Context(), want, nftable.Changes{
			Chains: map[string]bool{"disposable": true},
			Keys:   map[string]map[string]bool{"pods4": {"10.1.0.6": true}, "egress4": {"10.1.0.8": true}},
		})
		if err != nil || len(found) == 0 {
			t.Errorf("%s: %v, found %q", d, err, found)
		}
		if d := kerneltest.Diff(written(t, want), listed(t, "", want)); d != "" {
			t.Errorf("wanted (-), and what there is (+):\n%s", d)
		}
	}
}

// TestApplyAfterError applies a change that the kernel refuses, and then one that repairs it. Everything of the first
// change that was valid is then in the kernel.
func TestApplyAfterError(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	want, p := everything(), open(t)
	sync(t, p, want)
	want.Sets["pods4"].Elements["10.1.0.9"] = ""
	want.Sets["more"] = &nftable.Set{Type: "ipv4_addr", Interval: true, Elements: map[string]string{"10.0.0.0-10.0.0.7": ""}}
	want.Chains["empty"].Rules = []nftable.Rule{{Text: "ip saddr @more accept"}, {Text: "ip saddr vmap @more"}} // a set is no map
	changes := nftable.Changes{
		Chains: map[string]bool{"empty": true}, Sets: map[string]bool{"more": true}, Keys: map[string]map[string]bool{"pods4": {"10.1.0.9": true}},
	}
	if _, err := p.Apply(t.Context(), want, changes); err == nil || !strings.Contains(err.Error(), "chain empty: rule ip saddr vmap @more") {
		t.Errorf("got %v", err)
	}
	want.Chains["empty"].Rules = want.Chains["empty"].Rules[:1]
	if _, err := p.Apply(t.Context(), want, nftable.Changes{Chains: changes.Chains}); err != nil {
		t.Error(err)
	}
	if d := kerneltest.Diff(written(t, want), listed(t, "", want)); d != "" {
		t.Errorf("wanted (-), and what there is (+):\n%s", d)
	}
}

// TestRemovedChainLeavesItsUsers deletes a chain together with the elements and rules that name it, in one change.
func TestRemovedChainLeavesItsUsers(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	want := nftable.New("inet", "fairlead-chains")
	verdicts := &nftable.Set{Type: "ipv4_addr : verdict", Elements: map[string]string{}}
	want.Sets["egress4"] = verdicts
	want.Chains["forward"] = &nftable.Chain{Hook: forward, Rules: []nftable.Rule{{Text: "ip saddr vmap @egress4"}}}
	for i := range 5 {
		c := &nftable.Chain{}
		if i > 0 { // a chain of chains
			c.Rules = []nftable.Rule{{Text: fmt.Sprintf("jump c%d", i-1)}}
		}
		want.Chains[fmt.Sprintf("c%d", i)] = c
		verdicts.Elements[fmt.Sprintf("10.0.0.%d", i)] = fmt.Sprintf("goto c%d", i)
	}
	p := open(t)
	sync(t, p, want)
	c := nftable.Changes{Chains: map[string]bool{}, Keys: map[string]map[string]bool{"egress4": {}}}
	for i := range 5 {
		delete(want.Chains, fmt.Sprintf("c%d", i))
		delete(verdicts.Elements, fmt.Sprintf("10.0.0.%d", i))
		c.Chains[fmt.Sprintf("c%d", i)], c.Keys["egress4"][fmt.Sprintf("10.0.0.%d", i)] = true, true
	}
	delete(want.Sets, "egress4")
	want.Chains["forward"].Rules = nil
	c.Chains["forward"], c.Sets = true, map[string]bool{"egress4": true}
	if found, err := p.Apply(t.Context(), want, c); err != nil || found != nil {
		t.Fatalf("%v, found %q", err, found)
	}
	if list := listed(t, "", want); strings.Contains(list, "c0") || strings.Contains(list, "egress4") {
		t.Errorf("left:\n%s", list)
	}
}

// TestSetOfAnotherType changes the type of a set that rules use.
func TestSetOfAnotherType(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	want := everything()
	p := open(t)
	sync(t, p, want)
	want.Sets["pods4"] = &nftable.Set{Type: "ipv4_addr", Interval: true, Elements: map[string]string{"10.1.0.0-10.1.0.7": ""}}
	want.Chains["forward"].Hook = "type filter hook forward priority 7"
	found, err := p.Apply(t.Context(), want, nftable.Changes{Chains: map[string]bool{"forward": true}, Sets: map[string]bool{"pods4": true}})
	if err != nil || len(found) != 2 {
		t.Errorf("%v, found %q", err, found)
	}
	if d := kerneltest.Diff(written(t, want), listed(t, "", want)); d != "" {
		t.Errorf("wanted (-), and what there is (+):\n%s", d)
	}
}

// TestErrorsNameThePart checks that an error says which part of the table the kernel or the encoder refuses, and that
// nothing of the change takes effect.
func TestErrorsNameThePart(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	p := open(t)
	sync(t, p, everything())
	before := listed(t, "", everything())
	for want, change := range map[string]func(*nftable.Table, *nftable.Changes){
		`chain empty: rule jump nowhere`: func(t *nftable.Table, c *nftable.Changes) {
			t.Chains["empty"].Rules = []nftable.Rule{{Text: "jump nowhere"}}
			c.Chains = map[string]bool{"empty": true}
		},
		`chain empty: rule so what`: func(t *nftable.Table, c *nftable.Changes) {
			t.Chains["empty"].Rules = []nftable.Rule{{Text: "so what"}}
			c.Chains = map[string]bool{"empty": true}
		},
		`set pods4: element "10.1.0.300"`: func(t *nftable.Table, c *nftable.Changes) {
			t.Sets["pods4"].Elements["10.1.0.300"] = ""
			c.Keys = map[string]map[string]bool{"pods4": {"10.1.0.300": true}}
		},
		`elements of egress4`: func(t *nftable.Table, c *nftable.Changes) {
			t.Sets["egress4"].Elements["10.1.0.30"] = "goto nowhere"
			t.Sets["pods4"].Elements["10.1.0.30"] = ""
			c.Keys = map[string]map[string]bool{"egress4": {"10.1.0.30": true}, "pods4": {"10.1.0.30": true}}
		},
		`set bad: unknown nftables type "no_type"`: func(t *nftable.Table, c *nftable.Changes) {
			t.Sets["bad"] = &nftable.Set{Type: "no_type"}
			c.Sets = map[string]bool{"bad": true}
		},
	} {
		table, changes := everything(), nftable.Changes{}
		change(table, &changes)
		if _, err := p.Apply(t.Context(), table, changes); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", want, err)
		}
		if d := kerneltest.Diff(before, listed(t, "", table)); d != "" {
			t.Errorf("%s changed the table:\n%s", want, d)
		}
	}
	if found := sync(t, p, everything()); found != nil {
		t.Errorf("found %q", found)
	}
}
