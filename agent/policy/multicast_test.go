package policy_test

import (
	"net/netip"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/fairlead/fairlead/agent/policy"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/kerneltest/router"
)

// TestMulticast checks in the kernel that pods may send multicast and broadcast packets, unless a policy for ingress selects
// a pod on a bridge, or such a pod is not known.
func TestMulticast(t *testing.T) {
	t.Parallel()
	host := router.New(t)
	c := policy.New(node0)
	sync := func() {
		t.Helper()
		table, changes := c.Table()
		found, err := host.Table.Apply(t.Context(), table, changes)
		must(t, err)
		if len(found) > 0 && strings.Join(found, "") != "the table does not exist" {
			t.Errorf("the kernel had another table: %v", found)
		}
		read, err := host.Table.Read(t.Context(), table.Family, table.Name)
		must(t, err)
		if got, want := text(read), text(table); got != want {
			t.Fatalf("read from the kernel\n%s", kerneltest.Diff(want, got))
		}
	}
	decides := func(where string, want bool) {
		t.Helper()
		sync()
		for _, p := range [][2]string{{"10.0.0.1", "224.0.0.251"}, {"10.0.0.1", "239.255.255.255"}, {"10.0.0.1", "255.255.255.255"}, {"10.0.0.1", "10.0.0.255"}, {"fd00::1", "ff02::fb"}} {
			d, err := c.Evaluator().Decide(policy.Packet{Src: netip.MustParseAddr(p[0]), Dst: netip.MustParseAddr(p[1]), Protocol: "UDP", Port: 53})
			if err != nil || d.Allowed != want {
				t.Errorf("%s: %v: allowed %v, want %v (%v)", where, p, d.Allowed, want, err)
			}
		}
		for _, src := range []string{"10.0.0.9", "192.0.2.1"} { // no pods
			if d, err := c.Evaluator().Decide(policy.Packet{Src: netip.MustParseAddr(src), Dst: netip.MustParseAddr("224.0.0.251"), Protocol: "UDP", Port: 53}); err != nil || !d.Allowed {
				t.Errorf("%s: a packet of %s is dropped (%v)", where, src, err)
			}
		}
	}
	pod := func(name, v4, v6 string) {
		c.SetEndpoint(&policy.Endpoint{Namespace: "x", Name: name, Node: node0, Labels: map[string]string{"app": name}, Addresses: []netip.Addr{netip.MustParseAddr(v4), netip.MustParseAddr(v6)}})
	}
	isolate := func(name string, types ...networkingv1.PolicyType) {
		p := &networkingv1.NetworkPolicy{}
		p.Namespace, p.Name = "x", name
		p.Spec.PodSelector.MatchLabels, p.Spec.PolicyTypes = map[string]string{"app": name}, types
		c.SetNetworkPolicy(p)
	}
	c.SetNamespace("x", nil)
	pod("evil", "10.0.0.1", "fd00::1")
	pod("routed", "10.0.0.2", "fd00::2")
	isolate("routed", networkingv1.PolicyTypeIngress)
	decides("no pod on a bridge", true)
	claim := &policy.Claim{Namespace: "x", Name: "db", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.3")}, Bridged: []netip.Prefix{netip.MustParsePrefix("10.0.0.3/24"), netip.MustParsePrefix("fd00::3/64"), {}}}
	c.SetClaim("db", claim)
	decides("an unknown pod on a bridge", false)
	pod("db", "10.0.0.3", "fd00::3")
	decides("no policy for it", true)
	isolate("db", networkingv1.PolicyTypeEgress)
	decides("a policy for egress", true)
	isolate("db", networkingv1.PolicyTypeIngress)
	decides("a policy for ingress", false)
	c.WithoutLog()
	decides("without reports", false)
	c.DeletePolicy(policy.NetworkPolicyID("x", "db"))
	decides("without the policy", true)
	isolate("db", networkingv1.PolicyTypeIngress)
	decides("with the policy again", false)
	c.DeleteClaim("db")
	decides("without the attachment", true)
}
