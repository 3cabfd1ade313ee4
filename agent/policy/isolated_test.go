package policy

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func addrs(list ...string) (out []netip.Addr) {
	for _, text := range list {
		out = append(out, netip.MustParseAddr(text))
	}
	return out
}

// isolatedWorld has the pods shop/web, shop/db and far/web. In network blue, web has the address that db has in the
// host's network, and far is on another node. In network red, db has the address that web has in blue.
func isolatedWorld(t *testing.T) *Compiler {
	w := shop()
	w.Endpoints[0].Isolated = map[string][]netip.Addr{"blue": addrs("10.0.0.2", "fd00::2")}
	w.Endpoints[1].Isolated = map[string][]netip.Addr{"blue": addrs("10.0.0.9"), "red": addrs("10.0.0.2", "10.1.0.1")}
	w.Endpoints[2].Node, w.Endpoints[2].Isolated = "n2", map[string][]netip.Addr{"blue": addrs("10.0.0.7", "fd00::7")}
	w.Policies = append(w.Policies, networkPolicy(t, "shop", "db", `{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]}`),
		networkPolicy(t, "shop", "web", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: b}}}]}]}`))
	return w.compiler("n1")
}

// decides compares what a table does with packets, as "SRC DST", with what it should do.
func decides(t *testing.T, c *Compiler, allowed bool, packets ...string) {
	t.Helper()
	for _, p := range packets {
		src, dst, _ := strings.Cut(p, " ")
		d, err := c.Evaluator().Decide(Packet{netip.MustParseAddr(src), netip.MustParseAddr(dst), "TCP", 80})
		if err != nil || d.Allowed != allowed {
			t.Errorf("network %q: %s: allowed %v, want %v (%v)", c.Network(), p, d.Allowed, allowed, err)
		}
	}
}

// TestIsolatedNetworks checks that an address belongs to a pod only within its network, on this node and on others.
func TestIsolatedNetworks(t *testing.T) {
	c := isolatedWorld(t)
	blue, red, green := c.ForNetwork("blue", nil), c.ForNetwork("red", nil), c.ForNetwork("green", nil)
	if got := c.LocalNetworks(); len(got) != 2 || !got["blue"] || !got["red"] {
		t.Errorf("networks of this node's pods: %v", got)
	}
	decides(t, c, true, "10.0.0.1 10.0.0.2", "10.0.0.3 10.0.0.1")
	decides(t, c, false, "10.0.0.3 10.0.0.2", "10.0.0.9 10.0.0.2", "10.0.0.7 10.0.0.1")
	decides(t, blue, true, "10.0.0.2 10.0.0.9", "10.0.0.7 10.0.0.2", "fd00::7 fd00::2", "10.0.0.2 10.0.0.7", "10.0.0.7 10.0.0.1")
	decides(t, blue, false, "10.0.0.7 10.0.0.9", "10.0.0.1 10.0.0.9", "10.0.0.9 10.0.0.2", "fd00::3 fd00::2")
	decides(t, red, false, "10.0.0.1 10.0.0.2", "10.0.0.7 10.1.0.1")
	decides(t, green, true, "10.0.0.1 10.0.0.2", "10.0.0.7 10.0.0.9")
	if n := green.PolicedEndpoints(); len(green.Evaluator().table.Sets[mapOf(ingress, 0)].Elements) > 0 || green.Evaluator().Restricts() {
		t.Errorf("a network without pods has policies for %d", n)
	}

	// Changes reach each network like the host.
	w := shop()
	w.Endpoints[2].Isolated = map[string][]netip.Addr{"red": addrs("10.0.0.7")}
	w.Endpoints[2].Node = "n2"
	for _, x := range []*Compiler{c, blue, red} {
		x.SetEndpoint(w.Endpoints[2])
		x.DeleteEndpoint("shop", "web")
	}
	decides(t, blue, true, "10.0.0.3 10.0.0.2") // nobody has the address any more
	decides(t, blue, false, "10.0.0.7 10.0.0.9", "10.0.0.2 10.0.0.9")
	if name, _ := blue.Name(netip.MustParseAddr("10.0.0.7")); name != "" {
		t.Errorf("%s has an address in a network that it has left", name)
	}
	if name, _ := red.Name(netip.MustParseAddr("10.0.0.7")); name != "other/web" {
		t.Errorf("the address of other/web belongs to %q", name)
	}
}

// TestIsolatedClaims checks that a claim closes an address in its network only, until its pod is known.
func TestIsolatedClaims(t *testing.T) {
	c := isolatedWorld(t)
	blue := c.ForNetwork("blue", nil)
	blue.SetClaim("x", &Claim{Namespace: "shop", Name: "new", Addresses: addrs("10.0.0.1")})
	decides(t, blue, false, "10.0.0.3 10.0.0.1")
	decides(t, c, true, "10.0.0.3 10.0.0.1")
	e := &Endpoint{Namespace: "shop", Name: "new", Node: "n1", Labels: map[string]string{"app": "web"}}
	if blue.Waiting("x") == "" {
		t.Error("the claim does not wait for its pod")
	}
	blue.SetEndpoint(e)
	if waiting := blue.Waiting("x"); waiting != "" {
		t.Errorf("the claim waits for %s", waiting)
	}
	decides(t, blue, true, "10.0.0.1 10.0.0.9", "10.0.0.7 10.0.0.1")
	decides(t, blue, false, "10.0.0.9 10.0.0.1")
	blue.DeleteClaim("x")
	decides(t, blue, true, "10.0.0.9 10.0.0.1")
}

// TestIsolatedNodeAddresses checks that a pod of an isolated network may have the address of a node, and that the
// nodes' other addresses are the nodes'.
func TestIsolatedNodeAddresses(t *testing.T) {
	w := shop()
	w.Nodes = append(w.Nodes, &Node{Name: "n2", Labels: map[string]string{"zone": "x"}, Addresses: addrs("192.0.2.2")})
	w.Endpoints[0].Isolated = map[string][]netip.Addr{"blue": addrs("192.0.2.1")}
	w.Endpoints[1].Isolated = map[string][]netip.Addr{"blue": addrs("10.0.0.9")}
	w.ClusterPolicies = append(w.ClusterPolicies, clusterPolicy(t, "nodes", `{tier: Admin, priority: 1, subject: {pods: {podSelector: {matchLabels: {app: db}}, namespaceSelector: {}}},
		egress: [{action: Accept, to: [{nodes: {}}]}, {action: Deny, to: [{pods: {podSelector: {}, namespaceSelector: {}}}, {networks: [0.0.0.0/0]}]}]}`))
	c := w.compiler("n1")
	blue := c.ForNetwork("blue", nil)
	decides(t, blue, true, "10.0.0.9 192.0.2.2")
	decides(t, blue, false, "10.0.0.9 192.0.2.1")
	web := *w.Endpoints[0]
	web.Isolated = nil
	blue.SetEndpoint(&web)
	decides(t, blue, true, "10.0.0.9 192.0.2.1")
	blue.SetClaim("x", &Claim{Namespace: "shop", Name: "web", Addresses: addrs("192.0.2.1")})
	decides(t, blue, false, "10.0.0.9 192.0.2.1")
	blue.SetClaim("x", &Claim{Namespace: "shop", Name: "unknown", Addresses: addrs("192.0.2.1")})
	decides(t, blue, false, "10.0.0.9 192.0.2.1", "10.0.0.77 192.0.2.1")
	blue.DeleteClaim("x")
	decides(t, blue, true, "10.0.0.9 192.0.2.1")
}

// TestIsolatedPeers checks that the pods of a peer network are peers in rules, and that their own network's table
// decides for them.
func TestIsolatedPeers(t *testing.T) {
	w := shop()
	w.Endpoints[0].Isolated = map[string][]netip.Addr{"red": addrs("10.1.0.1")}
	w.Endpoints[1].Isolated = map[string][]netip.Addr{"blue": addrs("10.0.0.9")}
	w.Policies = append(w.Policies, networkPolicy(t, "shop", "all", `{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]}`))
	c := w.compiler("n1")
	blue := c.ForNetwork("blue", nil)
	decides(t, blue, false, "10.1.0.1 10.0.0.9")
	blue.SetPeers([]string{"red"}, c)
	decides(t, blue, true, "10.1.0.1 10.0.0.9", "10.0.0.9 10.1.0.1")
	decides(t, c.ForNetwork("red", []string{"blue"}), false, "10.0.0.9 10.1.0.1")
	blue.SetPeers(nil, c)
	decides(t, blue, false, "10.1.0.1 10.0.0.9")
}

func TestIsolatedNetworkStatus(t *testing.T) {
	pod := func(status string, ips ...string) *Endpoint {
		p := &corev1.Pod{}
		p.Annotations = map[string]string{networkStatus: status}
		for _, ip := range ips {
			p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: ip})
		}
		return FromPod(p)
	}
	for _, c := range []struct {
		status     string
		addrs, net string
	}{
		{`[{"ips": ["10.0.0.1"], "default": true}, {"ips": ["10.0.0.1", "fd00::1"], "fairlead.io/isolated-network": "blue"}]`, "10.0.0.1", "10.0.0.1 fd00::1"},
		{`[{"ips": ["10.0.0.1"], "default": true, "fairlead.io/isolated-network": "blue"}]`, "", "10.0.0.1"},
		{`[{"ips": ["10.0.0.5"]}, {"ips": ["x", "0.0.0.0", null], "fairlead.io/isolated-network": "blue"}]`, "10.0.0.1 10.0.0.5", ""},
		{`[{"ips": null, "fairlead.io/isolated-network": "blue"}, {"ips": ["10.0.0.7"], "fairlead.io/isolated-network": "blue"}]`, "10.0.0.1", "10.0.0.7"},
		{`{}`, "10.0.0.1", ""}, {`null`, "10.0.0.1", ""}, {`[null]`, "10.0.0.1", ""},
	} {
		e := pod(c.status, "10.0.0.1")
		if !slices.Equal(e.Addresses, addrs(strings.Fields(c.addrs)...)) || !slices.Equal(e.Isolated["blue"], addrs(strings.Fields(c.net)...)) {
			t.Errorf("%s: %v, %v", c.status, e.Addresses, e.Isolated)
		}
	}
}

// TestExplainInNetwork explains connections in an isolated network. About those between peers, each pod's own network
// decides.
func TestExplainInNetwork(t *testing.T) {
	w := shop()
	w.Endpoints[0].Isolated = map[string][]netip.Addr{"blue": addrs("10.0.0.2")} // in the host's network, db has it
	w.Endpoints[1].Isolated = map[string][]netip.Addr{"blue": addrs("10.0.0.9"), "red": addrs("10.1.0.1")}
	w.Endpoints[2].Node, w.Endpoints[2].Isolated = "n2", map[string][]netip.Addr{"red": addrs("10.1.0.7")}
	w.Nodes = append(w.Nodes, &Node{Name: "n3", Addresses: addrs("10.0.0.2")})
	w.Policies = append(w.Policies, networkPolicy(t, "shop", "db", `{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]}`))
	peers := map[string][]string{"blue": {"red"}, "red": {"blue"}}
	const denied = "no NetworkPolicy allows it: NetworkPolicy shop/db"
	for _, tt := range []struct{ network, src, dst, ingress string }{
		{"blue", "10.0.0.2", "10.0.0.9", "NetworkPolicy shop/db ingress[0]"},
		{"blue", "10.1.0.7", "10.0.0.9", denied},
		{"blue", "10.0.0.1", "10.0.0.9", denied},                             // an address of the host's network
		{"blue", "10.0.0.2", "10.1.0.1", "NetworkPolicy shop/db ingress[0]"}, // decided in red
		{"red", "10.1.0.7", "10.1.0.1", denied},
		{"red", "10.0.0.2", "10.1.0.1", "NetworkPolicy shop/db ingress[0]"},
		{"blue", "10.0.0.9", "10.0.0.2", "no policy selects shop/web"},
		{"green", "10.0.0.2", "10.0.0.9", "10.0.0.9 is not a pod: policy does not apply"},
	} {
		in := w.InNetwork(tt.network, peers)
		e, err := in.Explain(Packet{netip.MustParseAddr(tt.src), netip.MustParseAddr(tt.dst), "TCP", 80})
		if err != nil || e.Ingress != tt.ingress || e.Allowed != (tt.ingress != denied) {
			t.Errorf("%+v: %+v, %v", tt, e, err)
		}
	}
	for addr, want := range map[string]string{"10.0.0.2": "shop/web", "10.1.0.7": "other/web", "10.0.0.1": ""} {
		if pod, node := w.InNetwork("blue", peers).Names()(netip.MustParseAddr(addr)); pod != want || node != "" {
			t.Errorf("in network blue, %s is pod %q of node %q, want %q", addr, pod, node, want)
		}
	}
}
