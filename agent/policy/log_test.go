package policy_test

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/fairlead/fairlead/agent/policy"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/kerneltest/router"
	"github.com/fairlead/fairlead/kernel/nflog"
)

// guarded is a world in which each pod drops for another reason: "deny" by a ClusterNetworkPolicy, in both directions
// with port 7 and 8; "two" by two NetworkPolicies; and "closed" because its namespace is not known.
func guarded() *policy.World {
	w := &policy.World{Namespaces: map[string]map[string]string{"shop": {}}}
	for i, name := range []string{"shop/deny", "shop/two", "unknown/closed"} {
		namespace, name, _ := strings.Cut(name, "/")
		w.Endpoints = append(w.Endpoints, &policy.Endpoint{
			Namespace: namespace, Name: name, Node: node0, Labels: map[string]string{"app": name},
			Addresses: []netip.Addr{netip.MustParseAddr(fmt.Sprintf("10.0.0.%d", i+1)), netip.MustParseAddr(fmt.Sprintf("fd00::%d", i+1))},
		})
	}
	app := func(name string) metav1.LabelSelector {
		return metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
	}
	for _, name := range []string{"a", "b"} {
		p := &networkingv1.NetworkPolicy{}
		p.Namespace, p.Name, p.Spec.PodSelector = "shop", name, app("two")
		p.Spec.PolicyTypes = []networkingv1.PolicyType{"Ingress", "Egress"}
		w.Policies = append(w.Policies, p)
	}
	port := func(n int32) []v1alpha2.ClusterNetworkPolicyProtocol {
		return []v1alpha2.ClusterNetworkPolicyProtocol{{UDP: &v1alpha2.ClusterNetworkPolicyProtocolUDP{DestinationPort: &v1alpha2.Port{Number: n}}}}
	}
	all := []v1alpha2.CIDR{"0.0.0.0/0", "::/0"}
	cnp := &v1alpha2.ClusterNetworkPolicy{}
	cnp.Name, cnp.Spec.Tier = "deny", v1alpha2.AdminTier
	cnp.Spec.Subject.Pods = &v1alpha2.NamespacedPod{PodSelector: app("deny")}
	cnp.Spec.Egress = []v1alpha2.ClusterNetworkPolicyEgressRule{{Name: `say "7"`, Action: "Deny", To: []v1alpha2.ClusterNetworkPolicyEgressPeer{{Networks: all}}, Protocols: port(7)}}
	cnp.Spec.Ingress = []v1alpha2.ClusterNetworkPolicyIngressRule{{Action: "Deny", From: []v1alpha2.ClusterNetworkPolicyIngressPeer{{Namespaces: &metav1.LabelSelector{}}}, Protocols: port(8)}}
	w.ClusterPolicies = append(w.ClusterPolicies, cnp)
	return w
}

// TestReports sends packets through a node with the rules of a world, and reads what the kernel reports about those that
// it drops.
func TestReports(t *testing.T) {
	t.Parallel()
	host := router.New(t)
	_, err := host.Table.Sync(t.Context(), policy.Compile(guarded(), node0))
	must(t, err)
	l, err := nflog.Open(policy.LogGroup)
	must(t, err)
	want := map[router.Packet]string{}
	for _, prefix := range []string{"10.0.0.", "fd00::"} {
		packet := func(src, dst int, port uint16, reason string) {
			a, b := netip.MustParseAddr(fmt.Sprint(prefix, src)), netip.MustParseAddr(fmt.Sprint(prefix, dst))
			want[router.Packet{Src: a, Dst: b, Protocol: "UDP", Port: port}] = reason
		}
		packet(1, 77, 7, "egress: ClusterNetworkPolicy deny egress[0] say '7'")
		packet(1, 77, 80, "")
		packet(77, 1, 7, "")
		packet(2, 1, 8, "egress: no NetworkPolicy allows it: shop/a, shop/b")
		packet(1, 2, 9, "ingress: no NetworkPolicy allows it: shop/a, shop/b")
		packet(1, 1, 8, "")
		packet(3, 77, 80, "egress: the policies of the pod are not known yet")
		packet(77, 3, 80, "ingress: the policies of the pod are not known yet")
	}
	passed := host.Send(slices.Collect(maps.Keys(want)))
	got := map[router.Packet]string{}
	dropped := 0
	for p, reason := range want {
		if passed[p] != (reason == "") {
			t.Errorf("%+v: passed is %v", p, passed[p])
		}
		if reason != "" {
			dropped++
		}
	}
	ctx, stop := context.WithTimeout(t.Context(), kerneltest.Slow(5*time.Second))
	defer stop()
	_ = l.Run(ctx, func(p *nflog.Packet, _ int) {
		got[router.Packet{Src: p.Src, Dst: p.Dst, Protocol: p.Protocol, Port: p.DstPort}] = p.Prefix
		if len(got) == dropped {
			stop()
		}
	})
	for p, reason := range want {
		if got[p] != reason {
			t.Errorf("%+v: reported as %q, want %q", p, got[p], reason)
		}
	}
}

// TestReportLimit floods one pod. The kernel reports some packets, counts the others, and still reports what it drops for
// another pod.
func TestReportLimit(t *testing.T) {
	t.Parallel()
	host := router.New(t)
	_, err := host.Table.Sync(t.Context(), policy.Compile(guarded(), node0))
	must(t, err)
	l, err := nflog.Open(policy.LogGroup)
	must(t, err)
	to := func(dst string) router.Packet {
		return router.Packet{Src: netip.MustParseAddr("10.0.0.77"), Dst: netip.MustParseAddr(dst), Protocol: "UDP", Port: 8}
	}
	const flood = 2000
	began := time.Now()
	host.Send(slices.Repeat([]router.Packet{to("10.0.0.2")}, flood))
	took := time.Since(began)
	host.Send([]router.Packet{to("10.0.0.3")})
	reports := map[string]int{}
	ctx, stop := context.WithTimeout(t.Context(), kerneltest.Slow(5*time.Second))
	defer stop()
	_ = l.Run(ctx, func(p *nflog.Packet, _ int) {
		if reports[p.Dst.String()]++; reports["10.0.0.3"] > 0 {
			stop()
		}
	})
	counters, err := host.Table.Counters(policy.TableFamily, policy.TableName, policy.UnreportedChain)
	must(t, err)
	if len(counters) != 1 {
		t.Fatalf("counters %+v", counters)
	}
	unreported := int(counters[0].Packets)
	most := 20 + int(took.Seconds()*policy.LogRate) + 1
	if n := reports["10.0.0.2"]; n < 20 || n > most || n+unreported != flood {
		t.Errorf("%d packets in %v: %d were reported, want 20 to %d, and %d counted", flood, took, n, most, unreported)
	}
	if reports["10.0.0.3"] != 1 {
		t.Errorf("of another pod, %d packets were reported", reports["10.0.0.3"])
	}
}
