package stored

import (
	"maps"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/fairlead/fairlead/agent/policy"
	"github.com/fairlead/fairlead/kernel/kerneltest/router"
)

// TestLabelsOfAttachments checks that a container has the labels of all its attachments, and none of another container
// that had its name.
func TestLabelsOfAttachments(t *testing.T) {
	t.Parallel()
	all := Endpoints{}
	var e *policy.Endpoint
	for key, value := range map[string]string{
		"c/eth0": `"labels": {"old": "x"}, "since": 5`, "a/eth0": `"labels": {"older": "x"}`,
		"b/eth0": `"labels": {"app": "db"}, "since": 7`, "b/eth1": `"labels": {"net": "b"}, "since": 8`, "b/eth2": `"labels": {}, "since": 4`,
	} {
		d, err := Decode("endpoints/n2/"+key, []byte(`{"network": "default", "pod": "shop/db", `+value+`}`))
		if err != nil {
			t.Fatal(err)
		}
		e, _ = all.Set(d.Endpoint, true)
	}
	if want := (map[string]string{"app": "db", "net": "b"}); !maps.Equal(e.Labels, want) {
		t.Errorf("labels %v, want %v", e.Labels, want)
	}
}

// TestAddressOfAnotherContainer checks that an address belongs to the container that was added last, if another host still
// publishes the one that had it before.
func TestAddressOfAnotherContainer(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a", "z"} { // names before and after the other's
		all, c := Endpoints{}, policy.New("n1")
		c.AddNamespace("shop")
		for key, value := range map[string]string{"new": `"pod": "shop/` + name + `", "since": 7`, "old": `"pod": "shop/m", "since": 5`} {
			d, err := Decode("endpoints/n2/"+key+"/eth0", []byte(`{"network": "default", "ips": ["10.0.0.5"], `+value+`}`))
			if err != nil {
				t.Fatal(err)
			}
			e, _ := all.Set(d.Endpoint, true)
			c.SetEndpoint(e)
		}
		if got, _ := c.Name(netip.MustParseAddr("10.0.0.5")); got != "shop/"+EndpointName(name, "n2") {
			t.Errorf("the address belongs to %s, want shop/%s", got, EndpointName(name, "n2"))
		}
	}
}

// TestNamesWithSlashes verifies that a policy whose name has a slash is rejected: its key could be that of another policy.
func TestNamesWithSlashes(t *testing.T) {
	t.Parallel()
	for _, name := range [][2]string{{"a", "b/c"}, {"a/b", "c"}, {"", "c"}} {
		p := &networkingv1.NetworkPolicy{}
		p.Namespace, p.Name = name[0], name[1]
		if raw, err := (Document{Policy: p}).Encode(); err == nil {
			t.Errorf("%q: %s", name, raw)
		}
	}
}

// TestOddAddresses has another host write addresses that are none, or not as the kernel knows them. They must not keep the
// kernel from accepting the rules about the others.
func TestOddAddresses(t *testing.T) {
	t.Parallel()
	const value = `{"network": "default", "pod": "shop/web", "labels": {"app": "web"},
		"ips": ["10.0.0.5", "fe80::1%eth0", "", "::ffff:10.0.0.6", "0.0.0.0", "::"]}`
	d, err := Decode("endpoints/n2/c/eth0", []byte(value))
	if err != nil || d.Endpoint == nil {
		t.Fatalf("%+v, %v", d, err)
	}
	web, _ := Endpoints{}.Set(d.Endpoint, true)
	want := []netip.Addr{netip.MustParseAddr("10.0.0.5"), netip.MustParseAddr("fe80::1"), netip.MustParseAddr("10.0.0.6")}
	if !slices.Equal(web.Addresses, want) {
		t.Errorf("addresses %v, want %v", web.Addresses, want)
	}
	from := &networkingv1.NetworkPolicy{}
	from.Namespace, from.Name = "shop", "all"
	from.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{PodSelector: &from.Spec.PodSelector}}}}
	db := &policy.Endpoint{Namespace: "shop", Name: "db", Node: "n1", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}}
	w := &policy.World{
		Namespaces: map[string]map[string]string{"shop": {corev1.LabelMetadataName: "shop"}},
		Endpoints:  []*policy.Endpoint{db, web}, Policies: []*networkingv1.NetworkPolicy{from},
	}
	if _, err := router.New(t).Table.Sync(t.Context(), policy.Compile(w, "n1")); err != nil {
		t.Errorf("the kernel does not accept the rules: %v", err)
	}
}
