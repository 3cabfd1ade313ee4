package policytest

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	policyv1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"
	"sigs.k8s.io/yaml"

	"github.com/fairlead/fairlead/agent/policy"
)

// smallWorld returns a world without policies: two nodes, each with two endpoints.
func smallWorld() *policy.World {
	return &policy.World{
		Namespaces: map[string]map[string]string{"x": {"team": "red"}, "y": {"team": "blue"}, "empty": {}},
		Endpoints: []*policy.Endpoint{
			{Namespace: "x", Name: "a", Node: "n1", Labels: map[string]string{"app": "web"},
				Addresses: addresses("10.0.1.1", "fd00:0:0:1::1", "192.168.7.1"),
				Ports:     []policy.NamedPort{{Name: "http", Protocol: "TCP", Number: 80}, {Name: "dns", Protocol: "UDP", Number: 53}}},
			{Namespace: "x", Name: "b", Node: "n1", Labels: map[string]string{"app": "db", "tier": ""},
				Addresses: addresses("10.0.1.2", "fd00:0:0:1::2"),
				Ports:     []policy.NamedPort{{Name: "http", Protocol: "TCP", Number: 8080}}},
			{Namespace: "y", Name: "c", Node: "n2", Labels: map[string]string{"app": "web"},
				Addresses: addresses("10.0.2.1", "fd00:0:0:2::1"),
				Ports:     []policy.NamedPort{{Name: "http", Protocol: "SCTP", Number: 80}}},
			{Namespace: "y", Name: "d", Node: "n2", Addresses: addresses("10.0.2.2", "fd00:0:0:2::2")},
		},
		Nodes: []*policy.Node{
			{Name: "n1", Labels: map[string]string{"role": "control"}, Addresses: addresses("172.16.0.1", "fd01::1", "10.0.1.254")},
			{Name: "n2", Addresses: addresses("172.16.0.2", "fd01::2")},
		},
	}
}

func addresses(texts ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range texts {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

// add adds policies to a world, from the YAML text of their specs: NetworkPolicies x/p0, x/p1 and so on, and
// ClusterNetworkPolicies c0, c1 and so on. A prefix "NAMESPACE: " selects another namespace.
func add(t *testing.T, w *policy.World, specs ...string) {
	t.Helper()
	for _, spec := range specs {
		namespace := "x"
		if before, after, ok := strings.Cut(spec, ": "); ok && !strings.HasPrefix(before, "{") {
			namespace, spec = before, after
		}
		var err error
		if strings.Contains(spec, "tier: ") && strings.Contains(spec, "subject:") {
			c := &policyv1alpha2.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("c", len(w.ClusterPolicies))}}
			err = yaml.UnmarshalStrict([]byte(spec), &c.Spec)
			w.ClusterPolicies = append(w.ClusterPolicies, c)
		} else {
			n := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint("p", len(w.Policies))}}
			err = yaml.UnmarshalStrict([]byte(spec), &n.Spec)
			w.Policies = append(w.Policies, n)
		}
		if err != nil {
			t.Fatalf("%s: %v", spec, err)
		}
	}
}

// packet parses "SOURCE > DESTINATION PROTOCOL [PORT]". A side is an address, or an endpoint or a node, which may be
// followed by # and the index of one of its addresses.
func packet(t *testing.T, w *policy.World, text string) policy.Packet {
	t.Helper()
	f := strings.Fields(text)
	if len(f) < 4 || f[1] != ">" {
		t.Fatalf("invalid packet %q", text)
	}
	p := policy.Packet{Src: side(t, w, f[0]), Dst: side(t, w, f[2]), Protocol: f[3]}
	if len(f) > 4 {
		port, err := strconv.ParseUint(f[4], 10, 16)
		if err != nil {
			t.Fatal(err)
		}
		p.Port = uint16(port)
	}
	return p
}

func side(t *testing.T, w *policy.World, text string) netip.Addr {
	t.Helper()
	if a, err := netip.ParseAddr(text); err == nil {
		return a
	}
	name, number, _ := strings.Cut(text, "#")
	i, _ := strconv.Atoi(number)
	for _, e := range w.Endpoints {
		if e.Namespace+"/"+e.Name == name {
			return e.Addresses[i]
		}
	}
	for _, n := range w.Nodes {
		if n.Name == name {
			return n.Addresses[i]
		}
	}
	t.Fatalf("no endpoint or node %q", text)
	return netip.Addr{}
}

// world is a table of packets under some policies.
type world struct {
	name            string
	policies        []string
	allowed, denied []string
}

func (c world) run(t *testing.T) {
	w := smallWorld()
	add(t, w, c.policies...)
	for _, text := range c.allowed {
		if d := Decide(w, packet(t, w, text)); !d.Allowed() {
			t.Errorf("%s is denied: %+v", text, d)
		}
	}
	for _, text := range c.denied {
		if d := Decide(w, packet(t, w, text)); d.Allowed() {
			t.Errorf("%s is allowed: %+v", text, d)
		}
	}
}
