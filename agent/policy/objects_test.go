package policy

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
)

// TestForgedAnnotation checks that a pod does not get the address of another one by an annotation, also if it is newer.
func TestForgedAnnotation(t *testing.T) {
	p := &corev1.Pod{}
	p.Namespace, p.Name, p.CreationTimestamp.Time = "shop", "forged", time.Unix(9, 0)
	p.Annotations = map[string]string{networkStatus: `[{"ips": ["10.0.0.4"]}, {"ips": ["10.0.0.2", "10.0.9.1"]}]`}
	p.Status.PodIPs = []corev1.PodIP{{IP: "10.0.0.4"}}
	w := shop()
	w.Endpoints = append(w.Endpoints, FromPod(p))
	c := w.compiler("n1")
	for addr, want := range map[string]string{"10.0.0.2": "shop/db", "10.0.0.4": "shop/forged", "10.0.9.1": "shop/forged"} {
		if got, _ := c.Name(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s belongs to %q, want %q", addr, got, want)
		}
	}
	c.DeleteEndpoint("shop", "db")
	if got, _ := c.Name(netip.MustParseAddr("10.0.0.2")); got != "shop/forged" {
		t.Errorf("nobody else has it, and it belongs to %q", got)
	}
}

// TestForgedAnnotationOnOwnNode checks that an annotation gives a pod no packets on its own node: neither does a
// connection to such an address count as one to the pod itself, nor do the pod's policies apply to it. With an ADD, they do.
func TestForgedAnnotationOnOwnNode(t *testing.T) {
	w := shop()
	p := &corev1.Pod{}
	p.Namespace, p.Name, p.Spec.NodeName, p.CreationTimestamp.Time = "shop", "forged", "n1", time.Unix(9, 0)
	p.Status.PodIPs = []corev1.PodIP{{IP: "10.0.0.4"}}
	p.Annotations = map[string]string{networkStatus: `[{"ips": ["203.0.113.7"]},
		{"ips": ["10.0.0.8", "203.0.113.7"], "fairlead.io/isolated-network": "blue"}]`}
	w.Endpoints = append(w.Endpoints, FromPod(p))
	w.ClusterPolicies = append(w.ClusterPolicies, clusterPolicy(t, "metadata", `{tier: Admin, priority: 1, subject: {namespaces: {}},
		egress: [{action: Deny, to: [{networks: [203.0.113.7/32]}]}]}`))
	w.Policies = append(w.Policies, networkPolicy(t, "shop", "closed", `{podSelector: {}, policyTypes: [Ingress]}`))
	c := w.compiler("n1")
	c.SetClaim("x", &Claim{Namespace: "shop", Name: "forged", Addresses: addrs("10.0.0.4")})
	decides(t, c, false, "10.0.0.4 203.0.113.7", "10.0.0.3 10.0.0.4")
	decides(t, c, true, "198.51.100.1 203.0.113.7", "10.0.0.4 10.0.0.4")

	// A claim in the host's networks says nothing about an isolated network.
	c.SetClaim("macvlan", &Claim{Namespace: "shop", Name: "forged", Addresses: addrs("10.0.0.8"), Direct: true})
	decides(t, c.ForNetwork("blue", nil), true, "198.51.100.1 10.0.0.8")

	blue := c.ForNetwork("blue", nil)
	blue.SetClaim("y", &Claim{Namespace: "shop", Name: "forged", Addresses: addrs("10.0.0.8")})
	decides(t, blue, false, "10.0.0.8 203.0.113.7", "10.0.0.3 10.0.0.8")
	decides(t, blue, true, "198.51.100.1 203.0.113.7")

	c.SetClaim("z", &Claim{Namespace: "shop", Name: "forged", Addresses: addrs("203.0.113.7")})
	decides(t, c, true, "10.0.0.4 203.0.113.7")
	decides(t, c, false, "198.51.100.1 203.0.113.7")
	c.DeleteClaim("z")
	decides(t, c, false, "10.0.0.4 203.0.113.7")
	decides(t, c, true, "198.51.100.1 203.0.113.7")
}

// TestExplainAnnounced explains connections to addresses that only annotations have: the API knows no others of a pod's
// secondary networks.
func TestExplainAnnounced(t *testing.T) {
	w := shop()
	for i, name := range []string{"one", "two"} {
		p := &corev1.Pod{}
		p.Namespace, p.Name, p.Spec.NodeName, p.Labels = "shop", name, fmt.Sprint("n", i+1), map[string]string{"app": name}
		p.Status.PodIPs = []corev1.PodIP{{IP: fmt.Sprint("10.0.1.", i)}}
		p.Annotations = map[string]string{networkStatus: fmt.Sprintf(`[{"ips": ["10.9.0.%d"]}, {"ips": ["10.8.0.%d"], "fairlead.io/isolated-network": "blue"}]`, i, i)}
		w.Endpoints = append(w.Endpoints, FromPod(p))
	}
	w.Policies = append(w.Policies, networkPolicy(t, "shop", "one", `{podSelector: {matchLabels: {app: one}}, policyTypes: [Ingress]}`))
	for network, dst := range map[string]string{"": "10.9.0.0", "blue": "10.8.0.0"} {
		in := w
		if network != "" {
			in = w.InNetwork(network, nil)
		}
		src := netip.MustParseAddr(strings.TrimSuffix(dst, "0") + "1")
		e, err := in.Explain(Packet{src, netip.MustParseAddr(dst), "TCP", 80})
		if err != nil || e.Allowed || e.Ingress != "no NetworkPolicy allows it: NetworkPolicy shop/one" {
			t.Errorf("network %q: %+v, %v", network, e, err)
		}
	}
}

// TestNamesDiffer checks that two texts have two names, with two texts that 64 bits of FNV-1a do not tell apart.
func TestNamesDiffer(t *testing.T) {
	a, b := hash("8yn0iYCKYHlIj4-BwPqk"), hash("GReLUrM4wMqfg9yzV3KQ")
	if a == b || len(a) != 24 {
		t.Errorf("the names are %s and %s", a, b)
	}
}

// TestNodeProblem reads what agents, other programs and hostile nodes publish.
func TestNodeProblem(t *testing.T) {
	long := strings.Repeat("é", 1000)
	raw, err := json.Marshal(map[string]string{"policyProblem": long})
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"": "", "null": "", "[]": "", `{"policyProblem": 5}`: "", `{"id": "x"}`: "", `{"policyProblem": "the kernel is away"}`: "the kernel is away", string(raw): long[:300],
	} {
		n := &corev1.Node{}
		n.Annotations = map[string]string{nodeDocument: text}
		if got := FromNode(n).Problem; got != want || !utf8.ValidString(got) {
			t.Errorf("%.50s: %q, want %q", text, got, want)
		}
	}
	if got := FromNode(&corev1.Node{}).Problem; got != "" {
		t.Errorf("without an annotation: %q", got)
	}
}

// TestPortsOfInitContainers checks which containers' ports have names that a policy can use: those that run as long as the
// pod.
func TestPortsOfInitContainers(t *testing.T) {
	t.Parallel()
	always := corev1.ContainerRestartPolicyAlways
	named := func(name string, number int32) []corev1.ContainerPort {
		return []corev1.ContainerPort{{Name: name, ContainerPort: number}}
	}
	p := &corev1.Pod{}
	p.Spec.InitContainers = []corev1.Container{{Ports: named("once", 1)}, {Ports: named("sidecar", 2), RestartPolicy: &always}}
	p.Spec.Containers = []corev1.Container{{Ports: named("main", 3)}}
	want := []NamedPort{{Name: "sidecar", Protocol: "TCP", Number: 2}, {Name: "main", Protocol: "TCP", Number: 3}}
	if got := FromPod(p).Ports; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
