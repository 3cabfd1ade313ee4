package backend_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/backend"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

func TestMTU(t *testing.T) {
	t.Parallel()
	type b = cluster.Backend
	for _, c := range []struct {
		list   []b
		v4, v6 int
	}{
		{[]b{{Type: cluster.HostGW}}, 1500, 1500},
		{[]b{{Type: cluster.BGP}}, 1500, 1500},
		{[]b{{Type: cluster.VXLAN}}, 1450, 1430},
		{[]b{{Type: cluster.WireGuard}}, 1440, 1420},
		{[]b{{Type: cluster.IPIP}}, 1480, 1480},
		{[]b{{Type: cluster.HostGW, When: "direct"}, {Type: cluster.IPIP}, {Type: cluster.VXLAN}}, 1450, 1430},
		{nil, 1500, 1500},
	} {
		if v4, v6 := backend.MTU(1500, false, c.list...), backend.MTU(1500, true, c.list...); v4 != c.v4 || v6 != c.v6 {
			t.Errorf("%v: %d and %d, want %d and %d", c.list, v4, v6, c.v4, c.v6)
		}
	}
}

// TestChooseIsMutual checks that both nodes of a pair choose the same backend and have the same tunnels, whatever their
// addresses and blocks.
func TestChooseIsMutual(t *testing.T) {
	t.Parallel()
	type b = cluster.Backend
	lists := [][]b{
		{{Type: cluster.HostGW}}, {{Type: cluster.HostGW, When: "direct"}, {Type: cluster.VXLAN}}, {{Type: cluster.VXLAN, When: "direct"}, {Type: cluster.WireGuard}},
		{{Type: cluster.WireGuard}, {Type: cluster.IPIP}}, {{Type: cluster.IPIP}}, {{Type: cluster.HostGW}, {Type: cluster.BGP}},
	}
	addresses := []string{"192.0.2.1/24", "192.0.2.2/24", "192.0.2.200/25", "192.0.2.3/32", "198.51.100.1/24", "2001:db8::1/64", "2001:db8::2/64 192.0.2.9/24", "192.0.2.10/24 2001:db8::a/128", ""}
	for _, list := range lists {
		for i, x := range addresses {
			for j, y := range addresses {
				a, c := node(fmt.Sprint("a", i), x), node(fmt.Sprint("b", j), y)
				if i%3 == 0 {
					a.WireGuard = ""
				}
				one, err1 := backend.Choose(list, a, c)
				other, err2 := backend.Choose(list, c, a)
				if one != other || (err1 == nil) != (err2 == nil) || (one < 0) != (err1 != nil) {
					t.Errorf("%v: %q chooses %d (%v), %q %d (%v)", list, x, one, err1, y, other, err2)
				}
				tunnels := func(self, peer *cluster.Node, dst string) []string {
					return backend.Compile(backend.Input{Network: network(list...), Self: self, Peers: []backend.Peer{{Node: peer, Dst: prefixes(dst)}}}).Tunnels
				}
				if one, other := tunnels(a, c, "10.244.0.64/26 fd00:244::40/122"), tunnels(c, a, ""); !slices.Equal(one, other) {
					t.Errorf("%v: %q has the tunnels %v, %q %v", list, x, one, y, other)
				}
			}
		}
	}
}

// many returns an input with n peers, half of them on the same link.
func many(n int, list ...cluster.Backend) backend.Input {
	in := site(network(list...))
	in.Peers = nil
	for i := range n {
		address := fmt.Sprintf("192.0.%d.%d/16", i>>8, i&255)
		if i%2 == 1 {
			address = fmt.Sprintf("198.51.%d.%d/16", i>>8, i&255)
		}
		block := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 100, byte(i >> 8), byte(i)}), 32)
		in.Peers = append(in.Peers, backend.Peer{Node: node(fmt.Sprint("n", i), address), Dst: []netip.Prefix{block}})
	}
	in.Self = node("a", "192.0.255.255/16")
	return in
}

// TestIsolatedNetworkWithDirect checks that the nodes of an isolated network use its tunnel although the stored network
// asks for plain routes.
func TestIsolatedNetworkWithDirect(t *testing.T) {
	t.Parallel()
	compile := func(direct bool) backend.Result {
		in := many(2, cluster.Backend{Type: cluster.VXLAN, Direct: direct})
		in.Network.Isolated, in.Network.VNI = true, 7
		return backend.Compile(in)
	}
	want, got := compile(false), compile(true)
	if fmt.Sprint(got.Objects) != fmt.Sprint(want.Objects) || !maps.Equal(got.By, want.By) || len(want.By) != 2 {
		t.Errorf("with direct: %v %v\nwithout: %v %v", got.By, got.Objects, want.By, want.Objects)
	}
}

// TestUnboundUnderlay checks that a VXLAN link is not bound to an underlay whose MTU would limit its own.
func TestUnboundUnderlay(t *testing.T) {
	t.Parallel()
	for unbound, want := range map[bool]string{false: "eth0", true: ""} {
		in := site(network(cluster.Backend{Type: cluster.VXLAN}))
		in.Underlay.MTU, in.Underlay.Unbound = 9000, unbound
		links := kernel.Of[*kernel.VXLAN](backend.Compile(in).Objects)
		if len(links) != 1 || links[0].Link != want || links[0].MTU != 8950 {
			t.Errorf("unbound %v: %v, want one on %q with the MTU 8950", unbound, links, want)
		}
	}
}

// TestManyPeers checks that compiling thousands of peers is fast and deterministic, has no duplicate objects, and puts
// a peer's route after the objects it needs.
func TestManyPeers(t *testing.T) {
	t.Parallel()
	type b = cluster.Backend
	for _, list := range [][]b{{{Type: cluster.VXLAN}}, {{Type: cluster.HostGW, When: "direct"}, {Type: cluster.WireGuard}}, {{Type: cluster.VXLAN, Direct: true}}, {{Type: cluster.HostGW, When: "direct"}, {Type: cluster.IPIP}}} {
		in := many(5000, list...)
		began := time.Now()
		r := backend.Compile(in)
		if took := time.Since(began); took > kerneltest.Slow(time.Second) { // about 10 ms on an idle CPU
			t.Errorf("%v: %v", list, took)
		} else {
			t.Logf("%v: %v", list, took)
		}
		if len(r.Problems) > 0 || len(r.By) != 5000 {
			t.Errorf("%v: %d joined, problems %v", list, len(r.By), r.Problems)
		}
		ordered(t, r.Objects)
		if again := backend.Compile(in); fmt.Sprint(again.Objects) != fmt.Sprint(r.Objects) {
			t.Errorf("%v: another time it is otherwise", list)
		}
	}
}

// ordered checks that every object occurs once, and that a route via a neighbour follows the neighbour and its
// forwarding entry.
func ordered(t *testing.T, list kernel.Objects) {
	t.Helper()
	seen, neighbours, entries := map[string]bool{}, map[netip.Addr]string{}, map[string]bool{}
	for _, o := range list {
		if seen[o.String()] {
			t.Errorf("twice: %s", o)
		}
		seen[o.String()] = true
		switch o := o.(type) {
		case *kernel.Neigh:
			neighbours[o.IP] = o.MAC
		case *kernel.FDB:
			entries[o.MAC] = true
		case *kernel.Route:
			if o.Link == backend.VXLANName(1) && !entries[neighbours[o.Via]] {
				t.Errorf("%s comes before its neighbour and its forwarding entry", o)
			}
		}
	}
}

// TestProblemsOfOnePeer checks that a peer that cannot be connected does not affect others, in any order.
func TestProblemsOfOnePeer(t *testing.T) {
	t.Parallel()
	in := many(40, cluster.Backend{Type: cluster.VXLAN})
	in.Peers[7].Node = node("six", "2001:db8::7/64")
	in.Peers[9].Node = &cluster.Node{Name: "nowhere"}
	for range 10 {
		rand.Shuffle(len(in.Peers), func(i, j int) { in.Peers[i], in.Peers[j] = in.Peers[j], in.Peers[i] })
		r := backend.Compile(in)
		names := []string{r.Problems[0].Node, r.Problems[1].Node}
		slices.Sort(names)
		if len(r.Problems) != 2 || !slices.Equal(names, []string{"nowhere", "six"}) || len(r.By) != 38 {
			t.Errorf("problems %v, %d joined", r.Problems, len(r.By))
		}
	}
}

// TestPeerWithoutAddress checks that a Node without an InternalIP is reported as what it is, with each backend that needs an
// address.
func TestPeerWithoutAddress(t *testing.T) {
	t.Parallel()
	for _, b := range []string{cluster.HostGW, cluster.VXLAN, cluster.WireGuard, cluster.IPIP} {
		_, err := backend.Choose([]cluster.Backend{{Type: b}}, node("a", "192.0.2.1/24"), &cluster.Node{Name: "nowhere"})
		if want := b + ": nowhere has no address: its agent has published none, and in Kubernetes its Node has no InternalIP"; err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", b, err, want)
		}
	}
}

// TestForeignHardwareAddress checks that a node that publishes the hardware address of another node's tunnel takes none of
// its packets, whatever the names and the order.
func TestForeignHardwareAddress(t *testing.T) {
	t.Parallel()
	for _, thief := range []int{3, 8} {
		in := many(12, cluster.Backend{Type: cluster.VXLAN})
		in.Peers[thief].Node.Tunnel = strings.ToUpper(backend.VXLANMAC(in.Peers[5].Node.Name, cluster.DefaultVNI))
		in.Peers[1].Node.Tunnel, in.Peers[2].Node.Tunnel = "02:00:00:00:00:07", "02:00:00:00:00:07"
		r := backend.Compile(in)
		at := map[string]int{}
		for _, o := range r.Objects {
			if f, is := o.(*kernel.FDB); is {
				at[f.MAC]++
				if f.Dst == in.Peers[thief].Node.Addresses[0].Addr() {
					t.Errorf("packets go to %s: %v", in.Peers[thief].Node.Name, f)
				}
			}
		}
		if len(r.Problems) != 2 || r.Problems[0].Node != in.Peers[2].Node.Name || r.Problems[1].Node != in.Peers[thief].Node.Name || len(at) != 10 {
			t.Errorf("problems %v, entries %v", r.Problems, at)
		}
		for mac, n := range at {
			if n != 1 {
				t.Errorf("%d entries for %s", n, mac)
			}
		}
	}
}

// TestGroupHardwareAddress checks that a published hardware address that no link can have is a problem of that node only.
func TestGroupHardwareAddress(t *testing.T) {
	t.Parallel()
	for _, mac := range []string{"01:00:5e:00:00:01", "ff:ff:ff:ff:ff:ff", "00:00:00:00:00:00"} {
		in := many(4, cluster.Backend{Type: cluster.VXLAN})
		in.Peers[1].Node.Tunnel = mac
		in.Peers[2].Node.Flannel = &cluster.FlannelNode{Type: cluster.VXLAN, MAC: mac}
		r := backend.Compile(in)
		if len(r.Problems) != 2 || len(kernel.Of[*kernel.FDB](r.Objects)) != 2 {
			t.Errorf("%s: problems %v, entries %v", mac, r.Problems, kernel.Of[*kernel.FDB](r.Objects))
		}
		for _, p := range r.Problems {
			if !strings.Contains(p.Err.Error(), mac+" cannot be the hardware address of a link") || p.OfThisNode() {
				t.Errorf("%s: %v", mac, p.Err)
			}
		}
	}
}

func BenchmarkCompile(b *testing.B) {
	in := many(5000, cluster.Backend{Type: cluster.VXLAN})
	for b.Loop() {
		backend.Compile(in)
	}
}
