package policy

import (
	"fmt"
	"net/netip"
	"reflect"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestBatch checks that a batch has the result of its changes one by one, and that it writes the chains of an endpoint once:
// with each of 1,000 policies, it took minutes.
func TestBatch(t *testing.T) {
	t.Parallel()
	const count = 200
	set := func(c *Compiler) {
		c.SetNamespace("shop", nil)
		for i := range 3 {
			c.SetEndpoint(&Endpoint{Namespace: "shop", Name: fmt.Sprint("pod", i), Node: "n1", Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})}})
		}
		for i := range count {
			p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint("p", i)}}
			p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{}}}}}
			c.SetNetworkPolicy(p)
		}
		// One that no longer selects the pods, and one that is deleted after it was changed to select none.
		for _, name := range []string{"p7", "p8"} {
			p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
			p.Spec.PodSelector.MatchLabels = map[string]string{"app": "none"}
			c.SetNetworkPolicy(p)
		}
		c.DeletePolicy(NetworkPolicyID("shop", "p8"))
		c.DeleteEndpoint("shop", "pod2")
		c.SetEndpoint(&Endpoint{Namespace: "shop", Name: "pod6", Node: "n1", Addresses: []netip.Addr{netip.MustParseAddr("fd00::6")}})
	}
	one, batch := New("n1"), New("n1")
	set(one)
	batch.Batch(func() { set(batch) })
	want, _ := one.Table()
	got, changes := batch.Table()
	if !reflect.DeepEqual(got, want) {
		t.Error("a batch has another result than its changes one by one")
	}
	if n := len(changes.Chains); n > count*3/2 { // each policy has one of its own
		t.Errorf("%d chains changed", n)
	}
}
