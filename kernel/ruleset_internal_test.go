package kernel

import (
	"testing"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// Whatever a rule's expressions hold, reading them ends.
func FuzzReadRule(f *testing.F) {
	for _, text := range []string{
		"ip saddr 10.1.0.0/24 return", `iifname != "lo" ip daddr 127.0.0.0/8 drop`, "fib daddr type local jump hostports",
		"ct status dnat jump hostports-masquerade", "meta l4proto . ip daddr . th dport @hostports masquerade",
	} {
		exprs, err := compileRule(nfprotoInet, text)
		if err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(exprs))
	}
	f.Fuzz(func(t *testing.T, exprs []byte) {
		var p netlink.Buffer
		p.Bytes(4, exprs) // NFTA_RULE_EXPRESSIONS
		r := parseRule(p, &FilterChain{Family: "inet", Table: "t"})
		for _, s := range r.Steps {
			if s.Field == "" && s.Verdict == "" {
				t.Errorf("a step that says nothing: %+v", r)
			}
		}
		parseFilterElement(exprs)
		parseChain(append([]byte{1, 0, 0, 0}, exprs...))
	})
}
