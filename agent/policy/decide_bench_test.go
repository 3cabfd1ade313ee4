package policy_test

import (
	"math/rand/v2"
	"testing"

	"github.com/fairlead/fairlead/agent/policy"
)

// BenchmarkDecide decides about connections from everywhere to a node's pods, in a cluster with 10,000 policies.
func BenchmarkDecide(b *testing.B) {
	c := town{rand.New(rand.NewPCG(1, 2)), 10000, 10000}
	to := policy.New("node-0")
	c.fill(to)
	table, _ := to.Table()
	v := policy.NewEvaluator(table)
	var packets []policy.Packet
	for i := range c.pods {
		packets = append(packets, policy.Packet{Src: c.pod(i).Addresses[0], Dst: c.pod(i % podsPerNode).Addresses[0], Protocol: "TCP", Port: uint16(i)})
	}
	allowed := 0
	for i := 0; b.Loop(); i++ {
		d, err := v.Decide(packets[i%len(packets)])
		if err != nil {
			b.Fatal(err)
		}
		if d.Allowed {
			allowed++
		}
	}
	b.ReportMetric(float64(allowed)/float64(b.N), "allowed/op")
}
