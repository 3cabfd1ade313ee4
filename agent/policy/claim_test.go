package policy

import "testing"

// TestClaimedNodeAddress checks that an address which ADD gave to a pod of this node stays the pod's, whatever another node
// reports as its own. An address of this node is never a pod's.
func TestClaimedNodeAddress(t *testing.T) {
	w := shop()
	w.Policies = append(w.Policies, networkPolicy(t, "shop", "db", `{podSelector: {matchLabels: {app: db}}}`),
		networkPolicy(t, "other", "web", `{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: a}}}]}]}`))
	c := w.compiler("n1")
	c.SetClaim("x", &Claim{Namespace: "shop", Name: "db", Addresses: addrs("10.0.0.2")})
	decides(t, c, false, "10.0.0.1 10.0.0.2", "198.51.100.1 10.0.0.2")
	c.SetNode(&Node{Name: "n2", Addresses: addrs("192.0.2.2", "10.0.0.2")})
	decides(t, c, false, "10.0.0.1 10.0.0.2", "198.51.100.1 10.0.0.2", "192.0.2.2 10.0.0.3")
	decides(t, c, true, "10.0.0.2 10.0.0.3")
	c.DeleteClaim("x")
	decides(t, c, true, "10.0.0.1 10.0.0.2")
	decides(t, c, false, "10.0.0.2 10.0.0.3")
	c.SetClaim("x", &Claim{Namespace: "shop", Name: "db", Addresses: addrs("192.0.2.1")})
	decides(t, c, false, "192.0.2.1 10.0.0.3")
}

// TestDirectClaim checks that an address of an interface whose packets the node does not forward counts in the rules of
// other pods, and changes no policy of a pod that has the address, too.
func TestDirectClaim(t *testing.T) {
	w := shop()
	w.Policies = append(w.Policies, networkPolicy(t, "shop", "db", `{podSelector: {matchLabels: {app: db}}}`),
		networkPolicy(t, "other", "web", `{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: a}}}]}]}`))
	c := w.compiler("n1")
	c.SetClaim("web", &Claim{Namespace: "shop", Name: "web", Addresses: addrs("10.0.0.2", "10.0.0.9"), Direct: true, Since: 2})
	decides(t, c, true, "10.0.0.9 10.0.0.3")
	decides(t, c, false, "198.51.100.1 10.0.0.2")
	db := *w.Endpoints[1]
	db.Addresses = nil
	c.SetEndpoint(&db) // the API does not have its addresses yet
	c.SetClaim("db", &Claim{Namespace: "shop", Name: "db", Addresses: addrs("10.0.0.2"), Since: 1})
	decides(t, c, false, "198.51.100.1 10.0.0.2")
	c.SetClaim("unknown", &Claim{Namespace: "shop", Name: "unknown", Addresses: addrs("10.0.0.7"), Direct: true})
	decides(t, c, true, "198.51.100.1 10.0.0.7")
}

// TestNothingRemains checks that a compiler keeps nothing of namespaces, policies and pods that have gone.
func TestNothingRemains(t *testing.T) {
	w := shop()
	w.Policies = append(w.Policies, networkPolicy(t, "shop", "p", `{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}, {podSelector: {}}], ports: [{port: http}]}]}`))
	w.ClusterPolicies = append(w.ClusterPolicies, clusterPolicy(t, "c", `{tier: Admin, priority: 1, subject: {namespaces: {}}, egress: [{action: Deny, to: [{nodes: {}}]}]}`))
	c := w.compiler("n1")
	c.SetClaim("x", &Claim{Namespace: "shop", Name: "db", Addresses: addrs("10.0.0.2")})
	c.SetNetworkPolicy(w.Policies[0])
	c.DeleteClaim("x")
	c.DeletePolicy(NetworkPolicyID("shop", "p"))
	c.DeletePolicy(ClusterPolicyID("c"))
	for _, e := range w.Endpoints {
		c.DeleteEndpoint(e.Namespace, e.Name)
	}
	c.DeleteNode("n1")
	for name := range w.Namespaces {
		c.DeleteNamespace(name)
	}
	for name, n := range map[string]int{
		"namespaces": len(c.namespaces), "endpoints": len(c.endpoints.byKey), "by namespace": len(c.endpoints.byNamespace), "by label": len(c.endpoints.byLabel),
		"by address": len(c.endpoints.byAddr), "nodes": len(c.nodes), "addresses of nodes": len(c.nodeAddrs), "policies": len(c.policies), "subjects": len(c.subjects),
		"given": len(c.given), "claims": len(c.claims), "claimed": len(c.claimed), "local": len(c.local), "local namespaces": len(c.localIn), "shared": len(c.shared),
		"anchors": len(c.anchors), "members": len(c.members), "chains with": len(c.chainsWith), "chains": len(c.chains),
	} {
		if n != 0 {
			t.Errorf("%s: %d remain", name, n)
		}
	}
}
