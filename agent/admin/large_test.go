package admin

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/address"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestLargeCluster checks that the lists of a large cluster take seconds, not minutes.
func TestLargeCluster(t *testing.T) {
	t.Parallel()
	const nodes, containers = 4000, 10
	s := cluster.NewSnapshot()
	for i := range 10 {
		name := fmt.Sprint("net", i)
		s.Networks[name] = &cluster.Network{Name: name, Subnets: []cluster.Subnet{{CIDR: netip.MustParsePrefix("10.0.0.0/8"), Block: 26}}}
	}
	for i := range nodes {
		name, ip := fmt.Sprintf("n%04d", i), [4]byte{10, byte(i >> 8), byte(i), 0}
		s.Nodes[name] = &cluster.Node{Name: name}
		b := &cluster.Block{Network: "net0", Node: name, CIDR: netip.PrefixFrom(netip.AddrFrom4(ip), 26)}
		s.Blocks[b.Key()] = b
		for j := range containers {
			ip[3] = byte(j + 1)
			e := &cluster.Endpoint{Node: name, Container: fmt.Sprint(j), IfName: "eth0", Network: "net0", IPs: []netip.Addr{netip.AddrFrom4(ip)}}
			s.Endpoints[e.Key()] = e
		}
	}
	began := time.Now()
	list := Nodes(s)
	use, err := UseOf(s, "n0000", &address.LocalState{}, "")
	if took := time.Since(began); took > kerneltest.Slow(5*time.Second) {
		t.Errorf("it took %v", took)
	}
	if err != nil || len(list) != nodes || len(use.Blocks) != nodes {
		t.Fatalf("%d nodes, %v", len(list), err)
	}
	if n, b := list[nodes-1], use.Blocks[nodes-1]; *n.Endpoints != containers || fmt.Sprint(n.Blocks) != "[net0:10.15.159.0/26]" || *b.Used != containers {
		t.Errorf("the last node is %+v, and the last block is %+v", n, b)
	}
}
