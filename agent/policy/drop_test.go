package policy

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestReason reads the prefixes of reports.
func TestReason(t *testing.T) {
	long := make([]string, 20)
	for i := range long {
		long[i] = fmt.Sprintf("shop/policy-%d", i)
	}
	for _, c := range []struct {
		d    direction
		why  string
		want Reason
	}{
		{ingress, ClusterPolicyID("deny-all") + " ingress[0]", Reason{Policies: []string{"ClusterNetworkPolicy deny-all"}, Rule: "ingress[0]"}},
		{egress, ClusterPolicyID("deny-all") + ` egress[1] the "group 5: x"`, Reason{Policies: []string{"ClusterNetworkPolicy deny-all"}, Rule: "egress[1] the 'group 5: x'"}},
		{egress, ClusterPolicyID("deny-all") + " egress[1] a\x00b\nc", Reason{Policies: []string{"ClusterNetworkPolicy deny-all"}, Rule: "egress[1] a b c"}},
		{ingress, noRule + ": shop/a, shop/b", Reason{Policies: []string{"NetworkPolicy shop/a", "NetworkPolicy shop/b"}, Isolated: true}},
		{egress, noRule + ": " + strings.Join(long, ", "), Reason{Policies: []string{
			"NetworkPolicy shop/policy-0", "NetworkPolicy shop/policy-1", "NetworkPolicy shop/policy-2", "NetworkPolicy shop/policy-3", "NetworkPolicy shop/policy-4",
		}, Isolated: true, Cut: true}},
		{ingress, noRule + ": " + strings.Repeat("x", 200), Reason{Isolated: true, Cut: true}},
		{ingress, ClusterPolicyID(strings.Repeat("x", 200)) + " ingress[0]", Reason{Cut: true}},
		{egress, noLabels, Reason{}},
	} {
		prefix := reason(c.d, c.why)
		if len(prefix) > maxText || !utf8.ValidString(prefix) {
			t.Errorf("%d bytes: %q", len(prefix), prefix)
		}
		got, err := ParseReason(prefix)
		c.want.Direction, c.want.Text = c.d.String(), got.Text
		if err != nil || !reflect.DeepEqual(got, c.want) || !strings.HasSuffix(prefix, got.Text) {
			t.Errorf("%q: %+v (%v), want %+v", c.why, got, err, c.want)
		}
	}
	for _, prefix := range []string{"", "x", "ingress", "input: no NetworkPolicy allows it"} {
		if r, err := ParseReason(prefix); err == nil {
			t.Errorf("%q: %+v", prefix, r)
		}
	}
}

// TestShorten cuts between runes.
func TestShorten(t *testing.T) {
	for n := range 10 {
		text := strings.Repeat("x", 120+n) + strings.Repeat("é", 10)
		got := shorten(text)
		if len(got) > maxText || len(got) < maxText-3 || !utf8.ValidString(got) || !strings.HasSuffix(got, ellipsis) {
			t.Errorf("%d bytes: %q", len(got), got)
		}
	}
	if text := strings.Repeat("x", maxText); shorten(text) != text {
		t.Error("a text that fits is cut")
	}
}

// TestDecideDrop decides by rules that report, and by rules that do not. The quoted text has no meaning.
func TestDecideDrop(t *testing.T) {
	const web, db = "10.0.0.1", "10.0.0.2"
	w := shop()
	w.ClusterPolicies = append(w.ClusterPolicies, clusterPolicy(t, "deny", `{tier: Admin, priority: 1, subject: {namespaces: {}}, ingress: [{name: 'a" accept', action: Deny, from: [{namespaces: {}}]}]}`))
	for _, log := range []bool{true, false} {
		c := w.compiler("n1")
		if !log {
			c.WithoutLog()
		}
		table, _ := c.Table()
		d, err := Decide(table, Packet{netip.MustParseAddr(web), netip.MustParseAddr(db), "TCP", 80})
		if want := "ClusterNetworkPolicy deny ingress[0] a' accept"; err != nil || d.Allowed || d.Because[ingress] != want {
			t.Errorf("with log %v: %+v (%v), want dropped by %s", log, d, err, want)
		}
		for name, ch := range table.Chains {
			for _, r := range ch.Rules {
				if !log && strings.Contains(r.Text, "log") || !log && strings.Contains(r.Text, "limit rate") {
					t.Errorf("chain %s: %s", name, r.Text)
				}
			}
		}
		if reports := table.Chains[UnreportedChain] != nil; reports != log {
			t.Errorf("with log %v: the chain %s exists: %v", log, UnreportedChain, reports)
		}
	}
}

// TestNetworkWithoutLog checks that the table of an isolated network reports nothing either if the kernel cannot: else the
// kernel would not accept the table.
func TestNetworkWithoutLog(t *testing.T) {
	w := shop()
	w.Policies = append(w.Policies, networkPolicy(t, "shop", "p", `{podSelector: {}}`))
	c := w.compiler("n1")
	c.WithoutLog()
	table, _ := c.ForNetwork("blue", nil).Table()
	for name, ch := range table.Chains {
		for _, r := range ch.Rules {
			if strings.Contains(r.Text, "log") || strings.Contains(r.Text, "limit rate") {
				t.Errorf("chain %s: %s", name, r.Text)
			}
		}
	}
	if table.Chains[UnreportedChain] != nil {
		t.Errorf("the chain %s exists", UnreportedChain)
	}
}

// TestWithoutIPVS checks that neither the node's table nor that of an isolated network has rules for packets of IPVS if
// the kernel lacks what they need: else the kernel would not accept the table.
func TestWithoutIPVS(t *testing.T) {
	c := shop().compiler("n1")
	if table, _ := c.Table(); table.Chains[ipvsChain(ingress)] == nil || table.Chains[ipvsChain(egress)] == nil {
		t.Fatal("there are no chains for IPVS")
	}
	c.WithoutIPVS()
	for _, c := range []*Compiler{c, c.ForNetwork("blue", nil)} {
		table, _ := c.Table()
		for name, ch := range table.Chains {
			for _, r := range ch.Rules {
				if strings.Contains(r.Text, "fib") || strings.Contains(ch.Hook, "output") {
					t.Errorf("chain %s, %s: %s", name, ch.Hook, r.Text)
				}
			}
		}
	}
}
