package inspect_test

import (
	"testing"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/inspect"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/nft"
)

// TestRuleset checks that rules which nft and iptables write are decoded with their meaning.
func TestRuleset(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	for _, c := range [][]string{
		{"nft", "add table inet t; add chain inet t f { type filter hook forward priority 5; policy drop; }; add chain inet t g"},
		{"nft", `add rule inet t f ip saddr 10.1.0.0/16 oifname "up*" tcp dport 80 counter accept comment "web"`},
		{"nft", "add rule inet t f ct state { established, related } jump g; add rule inet t f ct state vmap { invalid : drop }; add rule inet t g limit rate 1/second drop"},
		{"nft", "add table ip d { flags dormant; }; add chain ip d o { type nat hook output priority -100; }; add rule ip d o tcp dport 80 redirect to :81"},
		{"iptables", "-A", "FORWARD", "-s", "10.2.0.0/24", "-p", "udp", "--dport", "53", "-j", "REJECT"},
	} {
		kerneltest.Run(t, c...)
	}
	e, err := kernel.Open(nil, kernel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	r, err := inspect.ReadRuleset(e)
	if err != nil {
		t.Fatal(err)
	}
	base := r.Base("forward", "ip")
	if len(base) != 2 || len(r.Base("output", "ip")) != 0 || len(r.Base("forward", "ip6")) != 1 {
		t.Fatalf("base chains: %+v", base)
	}
	for _, c := range base {
		switch c.Family {
		case "inet":
			checkOurChain(t, r, c)
		case "ip":
			if last := c.Rules[0].Steps[len(c.Rules[0].Steps)-1]; last.Verdict != "drop" || c.Drop {
				t.Errorf("iptables' rule: %+v", c.Rules)
			}
		}
	}
}

func checkOurChain(t *testing.T, r *nft.Ruleset, c *nft.Chain) {
	t.Helper()
	if !c.Drop || c.Priority != 5 || len(c.Rules) != 3 || r.Chain(c, "g") == nil {
		t.Fatalf("%+v", c)
	}
	first := c.Rules[0]
	fields := ""
	for _, s := range first.Steps {
		fields += s.Field + s.Verdict + ","
	}
	if first.Comment != "web" || fields != "meta nfproto,ip saddr,oifname,meta l4proto,th dport,accept," {
		t.Errorf("%s of %+v", fields, first)
	}
	if s := c.Rules[1].Steps; len(s) != 2 || s[0].Field != "ct state" || s[1].Verdict != "jump" || s[1].Chain != "g" {
		t.Errorf("%+v", s)
	}
	vmap := c.Rules[2].Steps[0]
	if set := r.Sets[vmap.Set]; !vmap.Map || set == nil || len(set.Elements) != 1 || set.Elements[0].Verdict != "drop" {
		t.Errorf("%+v, %+v", vmap, r.Sets)
	}
	if s := r.Chain(c, "g").Rules[0].Steps; s[0].Field != "?" || s[1].Verdict != "drop" {
		t.Errorf("%+v", s)
	}
}
