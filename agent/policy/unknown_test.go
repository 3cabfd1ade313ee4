package policy

import (
	"fmt"
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

// TestExplainNodesPodAddresses checks that an explanation knows the addresses of nodes in the pod network, as the rules do.
func TestExplainNodesPodAddresses(t *testing.T) {
	t.Parallel()
	addr := netip.MustParseAddr
	deny := &v1alpha2.ClusterNetworkPolicy{}
	deny.Name = "deny"
	deny.Spec.Tier = v1alpha2.AdminTier
	deny.Spec.Subject.Namespaces = &metav1.LabelSelector{}
	deny.Spec.Ingress = []v1alpha2.ClusterNetworkPolicyIngressRule{{
		Action: v1alpha2.ClusterNetworkPolicyRuleActionDeny, From: []v1alpha2.ClusterNetworkPolicyIngressPeer{{Namespaces: &metav1.LabelSelector{}}},
	}}
	w := &World{
		Namespaces:      map[string]map[string]string{"db": {}},
		Nodes:           []*Node{{Name: "n1", Addresses: []netip.Addr{addr("192.0.2.1")}}, {Name: "n2", Addresses: []netip.Addr{addr("192.0.2.2")}}},
		Endpoints:       []*Endpoint{{Namespace: "db", Name: "db", Node: "n1", Addresses: []netip.Addr{addr("10.0.1.2")}}},
		ClusterPolicies: []*v1alpha2.ClusterNetworkPolicy{deny},
		PodNetworks:     []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")},
	}
	before := w.Nodes[0]
	w.AddNodeAddresses(map[string][]netip.Addr{"n1": {addr("10.0.1.0"), addr("10.0.1.1")}, "n2": {addr("10.0.2.0"), addr("10.0.2.1")}})
	for src, want := range map[string]bool{"10.0.1.1": true, "10.0.2.0": true, "10.0.2.9": false, "192.0.2.2": true} {
		e, err := w.Explain(Packet{addr(src), addr("10.0.1.2"), "TCP", 80})
		if err != nil || e.Allowed != want {
			t.Errorf("from %s: %+v, %v, want %v", src, e, err, want)
		}
	}
	if len(before.Addresses) != 1 {
		t.Errorf("the node of the caller has changed: %v", before.Addresses)
	}
}

// TestWithout checks which prefixes remain without excluded addresses.
func TestWithout(t *testing.T) {
	t.Parallel()
	addr := netip.MustParseAddr
	for _, tt := range []struct {
		excluded [][2]netip.Addr
		want     string
	}{
		{nil, "[10.0.0.0/24]"},
		{[][2]netip.Addr{{addr("fd00::"), addr("fd00::ff")}}, "[10.0.0.0/24]"},
		{[][2]netip.Addr{{addr("10.0.0.0"), addr("10.0.0.127")}}, "[10.0.0.128/25]"},
		{[][2]netip.Addr{{addr("10.0.0.1"), addr("10.0.0.254")}, {addr("10.0.0.9"), addr("10.0.1.9")}}, "[10.0.0.0/32]"},
		{[][2]netip.Addr{{addr("9.0.0.0"), addr("11.0.0.0")}}, "[]"},
	} {
		if got := fmt.Sprint(Without(netip.MustParsePrefix("10.0.0.0/24"), tt.excluded)); got != tt.want {
			t.Errorf("%v: %s, want %s", tt.excluded, got, tt.want)
		}
	}
}

// TestCIDR checks that the text of an address range means the same as in Kubernetes.
func TestCIDR(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"10.1.2.3/8": "10.0.0.0/8", "010.0.0.0/8": "10.0.0.0/8", "10.000.01.0/024": "10.0.1.0/24", "::ffff:10.0.0.0/104": "10.0.0.0/8",
		"::ffff:010.0.0.0/104": "10.0.0.0/8", "fd00::1/64": "fd00::/64",
		"10.0.0.0": "", "10.0.0.0/33": "", "10.0.0.256/8": "", "0x10.0.0.0/8": "", "::ffff:0:0/90": "", "10.0.0.0/-1": "", "": "",
	} {
		p, err := parseCIDR(text)
		if (err == nil) != (want != "") || err == nil && p.String() != want {
			t.Errorf("%q: %v, %v, want %q", text, p, err, want)
		}
	}
}
