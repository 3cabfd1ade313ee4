package kube_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/address"
	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/admin"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/source"
	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/internal/kubetest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// testManagers runs the address management of three nodes: blocks, fixed addresses that follow a pod, a node that is
// deleted, and the administrator's commands.
func testManagers(t *testing.T, server *kubetest.Server) {
	s := open(t, server)
	n := &cluster.Network{Name: cluster.DefaultNetwork, Subnets: []cluster.Subnet{
		{CIDR: netip.MustParsePrefix("10.244.0.0/24"), Block: 28},
		{CIDR: netip.MustParsePrefix("10.250.0.0/24"), Assign: cluster.AssignCluster},
	}}
	if err := admin.CreateNetwork(t.Context(), s, n, false); err != nil {
		t.Fatal(err)
	}
	nodes, stops := map[string]*address.Manager{}, map[string]func(){}
	for i, name := range []string{"m1", "m2", "m3"} {
		server.Node(name, []string{fmt.Sprintf("192.0.2.%d", 101+i)})
		nodes[name], stops[name] = startManager(t, server, name)
	}
	kerneltest.Until(t, func() bool {
		for _, m := range nodes {
			if len(blocksOf(m)) == 0 {
				return false
			}
		}
		return true
	})
	seen := map[netip.Prefix]bool{}
	for name, m := range nodes {
		for _, b := range blocksOf(m) {
			if seen[b] {
				t.Errorf("node %s has the block %s of another node", name, b)
			}
			seen[b] = true
		}
	}

	// A pod keeps its address on another node, and other pods get others.
	first := claimFixed(t, nodes["m1"], "ns/web-0", "c1")
	if again := claimFixed(t, nodes["m2"], "ns/web-0", "c2"); again != first {
		t.Errorf("pod web-0 has %s, and %s on another node", first, again)
	}
	addresses := map[netip.Addr]bool{first: true}
	for i, name := range []string{"m1", "m2", "m3"} {
		ip := claimFixed(t, nodes[name], fmt.Sprintf("ns/db-%d", i), fmt.Sprint("d", i))
		if addresses[ip] {
			t.Errorf("%s is assigned twice", ip)
		}
		addresses[ip] = true
	}

	if err := admin.DeleteNetwork(t.Context(), s, cluster.DefaultNetwork, false); err == nil || !strings.Contains(err.Error(), "is in use") {
		t.Errorf("delete a network that is in use: %v", err)
	}
	other := &cluster.Network{Name: "blue", Isolated: true, VNI: 77, Subnets: []cluster.Subnet{{CIDR: netip.MustParsePrefix("10.9.0.0/16")}}}
	if err := admin.CreateNetwork(t.Context(), s, other, false); err != nil {
		t.Error(err)
	}
	if e := read(t, s, "vnis/77"); string(e.Value) != "blue" {
		t.Errorf("VNI 77 is %s's", e.Value)
	}
	if err := admin.DeleteNetwork(t.Context(), s, "blue", false); err != nil {
		t.Error(err)
	}
	wantGone(t, s, "networks/blue", "vnis/77")

	key := cluster.BlockKey(cluster.DefaultNetwork, blocksOf(nodes["m3"])[0])
	stops["m3"]() // otherwise it claims the block again: it has no session, which needs the Node
	server.Delete("/api/v1/nodes/m3")
	kerneltest.Until(t, func() bool {
		list, _, err := s.List(t.Context(), "blocks/default/")
		return err == nil && !slices.ContainsFunc(list, func(e store.Entry) bool { return e.Key == key })
	})
}

func startManager(t *testing.T, server *kubetest.Server, node string) (*address.Manager, func()) {
	t.Helper()
	s := open(t, server)
	m := address.NewManager(address.Options{Store: s, Node: node, Dir: local.Open(t.TempDir(), t.TempDir()), Grace: 2 * time.Second})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{}, 2)
	go func() { _ = source.Follow(ctx, s, cluster.Followed(), m); done <- struct{}{} }()
	go func() { _ = m.Run(ctx); done <- struct{}{} }()
	end := sync.OnceFunc(func() { stop(); <-done; <-done })
	t.Cleanup(end)
	return m, end
}

// blocksOf returns the blocks in a node's file.
func blocksOf(m *address.Manager) (list []netip.Prefix) {
	n, err := m.Dir.Read(cluster.DefaultNetwork)
	if err != nil {
		return nil
	}
	for _, s := range n.Subnets {
		list = append(list, s.Blocks...)
	}
	return list
}

func claimFixed(t *testing.T, m *address.Manager, pod, container string) netip.Addr {
	t.Helper()
	args, err := json.Marshal(local.ClaimArgs{Network: cluster.DefaultNetwork, Container: container, IfName: "eth0", Pod: pod, Wants: []local.Want{
		{Fixed: true, Ranges: []local.Span{{First: netip.MustParseAddr("10.250.0.1"), Last: netip.MustParseAddr("10.250.0.254")}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	result, err := m.Handlers()[local.OpClaim](t.Context(), args)
	if err != nil {
		t.Fatalf("claim an address for pod %s: %v", pod, err)
	}
	raw, err := json.Marshal(result)
	if err != nil {
		t.Fatal(err)
	}
	var got local.ClaimResult
	if err := json.Unmarshal(raw, &got); err != nil || len(got.IPs) != 1 {
		t.Fatalf("pod %s got %s, %v", pod, raw, err)
	}
	return got.IPs[0]
}

// testPodCIDRs checks that a node allocates from the ranges that Kubernetes gave its Node, and that no object is written
// for that.
func testPodCIDRs(t *testing.T, server *kubetest.Server) {
	s := open(t, server)
	n := &cluster.Network{Name: cluster.DefaultNetwork, Subnets: []cluster.Subnet{{CIDR: netip.MustParsePrefix("10.245.0.0/16"), Assign: cluster.AssignPodCIDR}}}
	if err := admin.CreateNetwork(t.Context(), s, n, false); err != nil {
		t.Fatal(err)
	}
	server.Node("p1", []string{"192.0.2.201"}, "10.245.1.0/24")
	server.Node("p2", []string{"192.0.2.202"})
	first, _ := startManager(t, server, "p1")
	second, _ := startManager(t, server, "p2")
	kerneltest.Until(t, func() bool {
		return slices.Equal(blocksOf(first), []netip.Prefix{netip.MustParsePrefix("10.245.1.0/24")})
	})
	kerneltest.Until(t, func() bool {
		return strings.Contains(fmt.Sprint(second.Problems()), "the Node has no podCIDR in 10.245.0.0/16: see --cluster-cidr and --allocate-node-cidrs")
	})
	if p := first.Problems(); len(p) > 0 {
		t.Errorf("problems of a node with a podCIDR: %q", p)
	}
	if err := server.Client().Patch("application/merge-patch+json").AbsPath("/api/v1/nodes/p2").Body([]byte(`{"spec": {"podCIDR": "10.245.2.0/24", "podCIDRs": ["10.245.2.0/24"]}}`)).Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	kerneltest.Until(t, func() bool {
		return slices.Equal(blocksOf(second), []netip.Prefix{netip.MustParsePrefix("10.245.2.0/24")}) && len(second.Problems()) == 0
	})
	if list, _, err := s.List(t.Context(), cluster.BlocksPrefix); err != nil || len(list) > 0 {
		t.Errorf("blocks in the API: %+v, %v", list, err)
	}
	server.Delete("/api/v1/nodes/p1")
	server.Delete("/api/v1/nodes/p2")
	if err := admin.DeleteNetwork(t.Context(), s, cluster.DefaultNetwork, false); err != nil {
		t.Error(err)
	}
}
