package policy

import (
	"net/netip"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"
)

// TestUnknownPod checks that a rule which denies pods also denies a pod that the API does not know yet, and nobody else.
func TestUnknownPod(t *testing.T) {
	t.Parallel()
	deny := &v1alpha2.ClusterNetworkPolicy{}
	deny.Name = "deny"
	deny.Spec.Tier = v1alpha2.AdminTier
	deny.Spec.Subject.Namespaces = &metav1.LabelSelector{MatchLabels: map[string]string{"of": "db"}}
	deny.Spec.Ingress = []v1alpha2.ClusterNetworkPolicyIngressRule{{
		Action:    v1alpha2.ClusterNetworkPolicyRuleActionDeny,
		From:      []v1alpha2.ClusterNetworkPolicyIngressPeer{{Namespaces: &metav1.LabelSelector{MatchLabels: map[string]string{"of": "web"}}}},
		Protocols: []v1alpha2.ClusterNetworkPolicyProtocol{{TCP: &v1alpha2.ClusterNetworkPolicyProtocolTCP{DestinationPort: &v1alpha2.Port{Number: 80}}}},
	}}
	addr := netip.MustParseAddr
	c := New("n1")
	c.Add(&World{
		Namespaces: map[string]map[string]string{"db": {"of": "db"}, "web": {"of": "web"}, "job": {"of": "job"}},
		Nodes:      []*Node{{Name: "n1", Addresses: []netip.Addr{addr("192.0.2.1")}}, {Name: "n2", Addresses: []netip.Addr{addr("192.0.2.2"), addr("10.0.2.0")}}},
		Endpoints: []*Endpoint{
			{Namespace: "db", Name: "db", Node: "n1", Addresses: []netip.Addr{addr("10.0.1.1"), addr("fd00::1")}},
			{Namespace: "web", Name: "web", Node: "n2", Addresses: []netip.Addr{addr("10.0.2.1")}},
			{Namespace: "job", Name: "job", Node: "n2", Addresses: []netip.Addr{addr("10.0.2.2")}},
		},
		ClusterPolicies: []*v1alpha2.ClusterNetworkPolicy{deny},
	})
	is := func(src, dst string, port uint16, want bool) {
		t.Helper()
		got, err := c.Evaluator().Decide(Packet{Src: addr(src), Dst: addr(dst), Protocol: "TCP", Port: port})
		if err != nil || got.Allowed != want {
			t.Errorf("%s to %s, port %d: %+v, %v, want %v", src, dst, port, got, err, want)
		}
	}
	is("10.0.2.9", "10.0.1.1", 80, true) // the pod networks are not known: it may be anybody
	c.SetPodNetworks([]netip.Prefix{netip.MustParsePrefix("10.0.7.7/16"), netip.MustParsePrefix("fd00::/64"), {}})
	is("10.0.2.9", "10.0.1.1", 80, false)
	is("10.0.2.9", "10.0.1.1", 81, true)
	is("fd00::9", "fd00::1", 80, false)
	is("10.0.2.1", "10.0.1.1", 80, false)
	is("10.0.2.2", "10.0.1.1", 80, true)
	is("10.0.2.0", "10.0.1.1", 80, true) // a node with an address of the network
	is("10.1.0.1", "10.0.1.1", 80, true)
	is("10.0.1.1", "10.0.2.9", 80, true) // the other direction
	c.SetEndpoint(&Endpoint{Namespace: "job", Name: "late", Node: "n2", Addresses: []netip.Addr{addr("10.0.2.9")}})
	is("10.0.2.9", "10.0.1.1", 80, true)
	c.DeleteEndpoint("job", "late")
	is("10.0.2.9", "10.0.1.1", 80, false)
	// The watch of pods may be ahead of that of namespaces.
	c.SetEndpoint(&Endpoint{Namespace: "new", Name: "first", Node: "n2", Addresses: []netip.Addr{addr("10.0.2.9")}})
	is("10.0.2.9", "10.0.1.1", 80, false)
	c.SetNamespace("new", map[string]string{"of": "job"})
	is("10.0.2.9", "10.0.1.1", 80, true)
	c.SetNamespace("new", map[string]string{"of": "web"})
	is("10.0.2.9", "10.0.1.1", 80, false)
	c.SetPodNetworks(nil)
	c.DeleteEndpoint("new", "first")
	is("10.0.2.9", "10.0.1.1", 80, true)
}
