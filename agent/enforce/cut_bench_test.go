package enforce

import (
	"fmt"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fairlead/fairlead/agent/policy"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// BenchmarkPass decides about 100,000 connections to 100 pods, none of which is forbidden, or a tenth.
func BenchmarkPass(b *testing.B) {
	for _, forbidden := range []bool{false, true} {
		b.Run(fmt.Sprint("forbidden ", forbidden), func(b *testing.B) {
			kerneltest.Host(b)
			s, err := openSockets()
			must(b, err)
			defer s.close()
			e := New(Options{Node: "n1", Log: slog.New(slog.DiscardHandler)})
			clear(e.missing)
			e.update(func(c *policy.Compiler) {
				crowd(c, 100)
				for i := range 100 {
					if forbidden {
						c.DeletePolicy(policy.NetworkPolicyID("x", fmt.Sprint(i, "-9")))
					}
				}
			})
			must(b, e.write(b.Context(), s.rules))
			var packets []policy.Packet
			for i := range 100_000 {
				packets = append(packets, policy.Packet{Src: netip.AddrFrom4([4]byte{10, 9, byte(i >> 8 & 15), byte(i)}), Dst: crowdAddr(i % 100), Protocol: "TCP", Port: uint16(80 + i%10)})
			}
			addEntries(b, packets)
			c := &cutter{e: e, conntrack: s.conntrack, p: s.cuts}
			must(b, c.pass(b.Context()))
			for b.Loop() {
				start := time.Now()
				must(b, c.pass(b.Context()))
				b.ReportMetric(float64(time.Since(start).Milliseconds()), "ms/last")
			}
			b.ReportMetric(float64(len(c.cut.TCP)), "cut")
		})
	}
}

func crowdAddr(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}) }

// crowd adds pods, each with ten policies that allow one port each.
func crowd(c *policy.Compiler, pods int) {
	c.SetNamespace("x", nil)
	for i := range pods {
		app := map[string]string{"app": fmt.Sprint(i)}
		c.SetEndpoint(&policy.Endpoint{Namespace: "x", Name: fmt.Sprint(i), Node: "n1", Labels: app, Addresses: []netip.Addr{crowdAddr(i)}})
		for k := range 10 {
			p := &networkingv1.NetworkPolicy{}
			p.Namespace, p.Name, p.Spec.PodSelector.MatchLabels = "x", fmt.Sprint(i, "-", k), app
			port := intstr.FromInt(80 + k)
			p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{Ports: []networkingv1.NetworkPolicyPort{{Port: &port}}}}
			c.SetNetworkPolicy(p)
		}
	}
}
