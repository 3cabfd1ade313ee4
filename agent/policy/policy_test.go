package policy

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	v1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"
	"sigs.k8s.io/yaml"

	"github.com/fairlead/fairlead/kernel/nftable"
)

// shop is a world of two namespaces on one node.
func shop() *World {
	pod := func(namespace, name, app string, addrs ...string) *Endpoint {
		e := &Endpoint{Namespace: namespace, Name: name, Node: "n1", Labels: map[string]string{"app": app}, Ports: []NamedPort{{"http", "TCP", 8080}}}
		for _, a := range addrs {
			e.Addresses = append(e.Addresses, netip.MustParseAddr(a))
		}
		return e
	}
	w := &World{
		Namespaces: map[string]map[string]string{"shop": {"team": "a"}, "other": {"team": "b"}},
		Endpoints: []*Endpoint{
			pod("shop", "web", "web", "10.0.0.1", "fd00::1"), pod("shop", "db", "db", "10.0.0.2", "fd00::2"),
			pod("other", "web", "web", "10.0.0.3", "fd00::3"),
		},
		Nodes: []*Node{{Name: "n1", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, Labels: map[string]string{"zone": "x"}}},
	}
	w.Endpoints[1].Ports[0].Number = 5432
	return w
}

func networkPolicy(t *testing.T, namespace, name, spec string) *networkingv1.NetworkPolicy {
	t.Helper()
	p := &networkingv1.NetworkPolicy{}
	p.Namespace, p.Name = namespace, name
	if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
		t.Fatal(err)
	}
	return p
}

func clusterPolicy(t *testing.T, name, spec string) *v1alpha2.ClusterNetworkPolicy {
	t.Helper()
	p := &v1alpha2.ClusterNetworkPolicy{}
	p.Name = name
	if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
		t.Fatal(err)
	}
	return p
}

func (w *World) decide(t *testing.T, src, dst, protocol string, port uint16) (allowed string) {
	t.Helper()
	d, err := Decide(Compile(w, "n1"), Packet{netip.MustParseAddr(src), netip.MustParseAddr(dst), protocol, port})
	if err != nil {
		t.Fatal(err)
	}
	if d.Allowed {
		return "allowed"
	}
	return "dropped"
}

func TestNetworkPolicy(t *testing.T) {
	const web, db, other = "10.0.0.1", "10.0.0.2", "10.0.0.3"
	for _, c := range []struct {
		name, spec, src, dst, protocol string
		port                           uint16
		want                           string
	}{
		{"no rule", `{podSelector: {matchLabels: {app: db}}}`, web, db, "TCP", 5432, "dropped"},
		{"another pod", `{podSelector: {matchLabels: {app: db}}}`, db, web, "TCP", 80, "allowed"},
		{"itself", `{podSelector: {}, policyTypes: [Ingress, Egress]}`, db, db, "TCP", 80, "allowed"},
		{"empty rule", `{podSelector: {}, ingress: [{}]}`, other, db, "ICMP", 0, "allowed"},
		{"pods", `{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]}`, web, db, "UDP", 53, "allowed"},
		{"pods of another namespace", `{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]}`, other, db, "UDP", 53, "dropped"},
		{"namespaces", `{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: b}}}]}]}`, other, db, "UDP", 53, "allowed"},
		{"block", `{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/24, except: [10.0.0.3/32]}}]}]}`, web, db, "UDP", 53, "allowed"},
		{"except", `{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/24, except: [10.0.0.3/32]}}]}]}`, other, db, "UDP", 53, "dropped"},
		{"except more than the block", `{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.2/31, except: [10.0.0.0/24]}}]}]}`, other, db, "UDP", 53, "dropped"},
		{"except another block", `{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.2/31, except: [10.0.0.8/32]}}]}]}`, other, db, "UDP", 53, "dropped"},
		{"named port", `{podSelector: {}, ingress: [{ports: [{port: http}]}]}`, web, db, "TCP", 5432, "allowed"},
		{"named port of another pod", `{podSelector: {}, ingress: [{ports: [{port: http}]}]}`, web, db, "TCP", 8080, "dropped"},
		{"SCTP", `{podSelector: {}, ingress: [{ports: [{port: 5432}]}]}`, web, db, "SCTP", 5432, "dropped"},
		{"range", `{podSelector: {}, ingress: [{ports: [{port: 1, endPort: 65535, protocol: UDP}, {port: 5, protocol: SCTP}]}]}`, web, db, "UDP", 65535, "allowed"},
		{"egress", `{podSelector: {}, policyTypes: [Egress], egress: [{to: [{podSelector: {}}], ports: [{port: http}]}]}`, web, db, "TCP", 5432, "allowed"},
		{"egress to another", `{podSelector: {}, policyTypes: [Egress], egress: [{to: [{podSelector: {}}], ports: [{port: http}]}]}`, web, other, "TCP", 8080, "dropped"},
		{"egress outside", `{podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 0.0.0.0/0}}]}]}`, web, "198.51.100.1", "TCP", 80, "allowed"},
	} {
		w := shop()
		w.Policies = append(w.Policies, networkPolicy(t, "shop", "p", c.spec))
		if got := w.decide(t, c.src, c.dst, c.protocol, c.port); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestClusterNetworkPolicy(t *testing.T) {
	const web, db, other = "10.0.0.1", "10.0.0.2", "10.0.0.3"
	all := `subject: {namespaces: {}}`
	for _, c := range []struct{ name, admin, baseline, np, src, dst, want string }{
		{"deny", all + `, ingress: [{action: Deny, from: [{namespaces: {matchLabels: {team: b}}}]}]`, "", "", other, db, "dropped"},
		{"accept before NetworkPolicy", all + `, ingress: [{action: Accept, from: [{namespaces: {}}]}]`, "", `{podSelector: {}}`, web, db, "allowed"},
		{"pass to NetworkPolicy", all + `, ingress: [{action: Pass, from: [{namespaces: {}}]}, {action: Deny, from: [{namespaces: {}}]}]`, "", `{podSelector: {}}`, web, db, "dropped"},
		{"pass to the default", all + `, ingress: [{action: Pass, from: [{namespaces: {}}]}, {action: Deny, from: [{namespaces: {}}]}]`, "", "", web, db, "allowed"},
		{"pass to the baseline", all + `, ingress: [{action: Pass, from: [{namespaces: {}}]}]`, all + `, ingress: [{action: Deny, from: [{namespaces: {}}]}]`, "", web, db, "dropped"},
		{"baseline before NetworkPolicy", "", all + `, ingress: [{action: Deny, from: [{namespaces: {}}]}]`, `{podSelector: {}, ingress: [{}]}`, web, db, "allowed"},
		{"nodes", all + `, egress: [{action: Deny, to: [{nodes: {matchLabels: {zone: x}}}]}]`, "", "", web, "192.0.2.1", "dropped"},
		{"networks", all + `, egress: [{action: Deny, to: [{networks: [198.51.100.0/24]}]}]`, "", "", web, "198.51.100.9", "dropped"},
		{"unknown peer", all + `, egress: [{action: Pass, to: [{}]}]`, "", "", web, db, "dropped"},
	} {
		w := shop()
		if c.admin != "" {
			w.ClusterPolicies = append(w.ClusterPolicies, clusterPolicy(t, "admin", "{tier: Admin, priority: 1, "+c.admin+"}"))
		}
		if c.baseline != "" {
			w.ClusterPolicies = append(w.ClusterPolicies, clusterPolicy(t, "baseline", "{tier: Baseline, priority: 1, "+c.baseline+"}"))
		}
		if c.np != "" {
			w.Policies = append(w.Policies, networkPolicy(t, "shop", "p", c.np))
		}
		if got := w.decide(t, c.src, c.dst, "TCP", 80); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// TestUnknownNamespace has an endpoint before its namespace.
func TestUnknownNamespace(t *testing.T) {
	const web, db = "10.0.0.1", "10.0.0.2"
	w := shop()
	if got := w.decide(t, web, db, "TCP", 80); got != "allowed" {
		t.Fatal(got)
	}
	delete(w.Namespaces, "shop")
	for _, p := range [][2]string{{web, db}, {db, web}, {"198.51.100.1", web}, {web, "198.51.100.1"}} {
		if got := w.decide(t, p[0], p[1], "TCP", 80); got != "dropped" {
			t.Errorf("%v: %s", p, got)
		}
	}
	if got := w.decide(t, "198.51.100.1", "10.0.0.3", "TCP", 80); got != "allowed" {
		t.Errorf("another namespace: %s", got)
	}
}

// TestDecideErrors checks that Decide reports what it cannot evaluate.
func TestDecideErrors(t *testing.T) {
	for rule, want := range map[string]string{
		"ip saddr":            "it ends early",
		"ip saddr vmap":       "vmap without a map",
		"ip saddr vmap x":     "vmap without a map",
		"ip ttl 5 drop":       `unknown field "ip ttl"`,
		"ip saddr . drop":     "it ends early",
		"ip saddr @none drop": "set none does not exist",
		"ip daddr @odd drop":  `element "x"`,
		"jump nowhere":        "chain nowhere does not exist",
		"jump egress":         "too many jumps",
	} {
		table := Compile(shop(), "n1")
		table.Sets["odd"] = &nftable.Set{Type: "ipv4_addr", Interval: true, Elements: map[string]string{"x": ""}}
		table.Chains["egress"].Rules = []nftable.Rule{{Text: rule}}
		_, err := Decide(table, Packet{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), "TCP", 80})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", rule, err, want)
		}
	}
}

// TestManyPeersAndNamedPorts checks that the rules for a rule of a policy are as many as its peers, and not as its peers
// times its ports. Else one object of 200 kB would need millions of rules.
func TestManyPeersAndNamedPorts(t *testing.T) {
	const n = 200
	p := &networkingv1.NetworkPolicy{}
	p.Namespace, p.Name = "shop", "p"
	var r networkingv1.NetworkPolicyIngressRule
	for i := range n {
		name, peer := intstr.FromString(fmt.Sprintf("p%d", i)), &metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprint("a", i)}}
		r.Ports = append(r.Ports, networkingv1.NetworkPolicyPort{Port: &name})
		r.From = append(r.From, networkingv1.NetworkPolicyPeer{PodSelector: peer})
	}
	r.From[0].PodSelector.MatchLabels["app"] = "web"
	http := intstr.FromString("http")
	r.Ports = append(r.Ports, networkingv1.NetworkPolicyPort{Port: &http})
	p.Spec.Ingress = append(p.Spec.Ingress, r)
	w := shop()
	w.Policies = append(w.Policies, p)
	rules := 0
	for _, ch := range Compile(w, "n1").Chains {
		rules += len(ch.Rules)
	}
	if rules > 5*n {
		t.Errorf("%d rules for %d peers and %d ports", rules, n, n)
	}
	for port, want := range map[uint16]string{5432: "allowed", 8080: "dropped", 80: "dropped"} {
		if got := w.decide(t, "10.0.0.1", "10.0.0.2", "TCP", port); got != want {
			t.Errorf("port %d: %s, want %s", port, got, want)
		}
	}
	if got := w.decide(t, "10.0.0.3", "10.0.0.2", "TCP", 5432); got != "dropped" {
		t.Errorf("another namespace: %s", got)
	}
}

// TestPortInQuotes checks that a port which Kubernetes rejects is reported. It would match the port of no pod.
func TestPortInQuotes(t *testing.T) {
	for port, want := range map[string]string{
		`"80"`:                    `write the number without quotes`,
		`"Web_Port"`:              `port name "Web_Port"`,
		`"a-long-name-of-a-port"`: `port name "a-long-name-of-a-port"`,
		`http`:                    "",
		`80`:                      "",
	} {
		w := shop()
		w.Policies = append(w.Policies, networkPolicy(t, "shop", "p", `{podSelector: {}, ingress: [{ports: [{port: `+port+`}]}]}`))
		got := strings.Join(w.Selections()[0].Problems, "\n")
		if !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("port %s: %q, want %q", port, got, want)
		}
	}
}
