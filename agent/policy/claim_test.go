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
