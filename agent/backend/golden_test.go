package backend_test

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/backend"
	"github.com/fairlead/fairlead/agent/cluster"
)

func prefixes(s string) (out []netip.Prefix) {
	for f := range strings.FieldsSeq(s) {
		out = append(out, netip.MustParsePrefix(f))
	}
	return out
}

// key derives a valid public key from a node's name.
func key(node string) string {
	if len(node) == 1 {
		return strings.Repeat(node, 42) + "A="
	}
	sum := sha256.Sum256([]byte(node))
	return base64.StdEncoding.EncodeToString(sum[:])
}

func node(name, addresses string) *cluster.Node {
	return &cluster.Node{Name: name, ID: name, Addresses: prefixes(addresses), WireGuard: key(name)}
}

func network(backends ...cluster.Backend) *cluster.Network {
	return &cluster.Network{Name: "default", Subnets: []cluster.Subnet{{CIDR: netip.MustParsePrefix("10.244.0.0/16")}, {CIDR: netip.MustParsePrefix("fd00:244::/48")}}, Backends: backends}
}

// site returns node a with two peers: b on its link, c behind a router.
func site(n *cluster.Network) backend.Input {
	return backend.Input{
		Network: n, Self: node("a", "192.0.2.1/24 2001:db8::1/64"), Blocks: prefixes("10.244.0.0/26 fd00:244::/122"),
		Underlay: backend.Underlay{Link: "eth0", Index: 2, MTU: 1500}, KeyFile: "/var/lib/fairlead/wireguard.key",
		Program: []string{"/usr/bin/fairlead", "wireguard-device"}, Socket: "/run/fairlead/fl-wg.sock",
		Peers: []backend.Peer{
			{Node: node("b", "192.0.2.2/24 2001:db8::2/64"), Dst: prefixes("10.244.0.64/26 10.244.1.0/26 fd00:244::40/122")},
			{Node: node("c", "198.51.100.3/24 2001:db8:1::3/64"), Dst: prefixes("10.244.0.128/26 10.244.9.7/32 fd00:244::80/122")},
		},
	}
}

// over6 returns the site with an IPv6-only underlay.
func over6(n *cluster.Network) backend.Input {
	in := site(n)
	only := func(n *cluster.Node) *cluster.Node {
		c := *n
		c.Addresses = n.Addresses[1:]
		return &c
	}
	in.Self = only(in.Self)
	for i := range in.Peers {
		in.Peers[i].Node = only(in.Peers[i].Node)
	}
	return in
}

func goldenInputs() map[string]backend.Input {
	type b = cluster.Backend
	flannel := site(network())
	flannel.Flannel = true
	flannel.Peers[0].Node.Flannel = &cluster.FlannelNode{Type: cluster.VXLAN, MAC: "5e:00:00:00:00:0B", V6: "5e:00:00:00:00:0c"}
	flannel.Peers[1].Node.Flannel = &cluster.FlannelNode{Type: cluster.WireGuard, Key: key("f")}
	flannel6 := over6(network())
	flannel6.Flannel = true
	turning := site(network(b{Type: cluster.WireGuard, Keepalive: 25}))
	turning.Peers[0].Node.Previous = key("o")
	turning.Peers[1].Node.WireGuard = ""
	learned := site(network(b{Type: cluster.HostGW, When: "direct"}, b{Type: cluster.BGP}))
	via := func(s string) (out []netip.Addr) {
		for f := range strings.FieldsSeq(s) {
			out = append(out, netip.MustParseAddr(f))
		}
		return out
	}
	learned.Peers[1].Dst = append(slices.Clone(learned.Peers[1].Dst), netip.MustParsePrefix("10.244.0.7/32"), netip.MustParsePrefix("10.244.0.98/32"))
	learned.Learned = []backend.Learned{
		{Dst: netip.MustParsePrefix("10.244.0.128/26"), Via: via("192.0.2.254")},
		{Dst: netip.MustParsePrefix("fd00:244::80/122"), Via: via("2001:db8::fe 2001:db8::ff")},
		{Dst: netip.MustParsePrefix("10.244.0.192/26"), Via: via("192.0.2.1 192.0.2.253")},              // this node's address is no next hop
		{Dst: netip.MustParsePrefix("10.244.2.0/26"), Via: via("192.0.2.254 198.51.100.9 192.0.2.253")}, // one is on no link
		{Dst: netip.MustParsePrefix("10.244.2.64/26"), Via: via("198.51.100.8 198.51.100.9")},           // both are
		{Dst: netip.MustParsePrefix("10.244.1.0/26"), Via: via("192.0.2.1")},
		{Dst: netip.MustParsePrefix("10.244.0.7/32"), Via: via("192.0.2.254")},  // a fixed address of this node's block, now on another node
		{Dst: netip.MustParsePrefix("10.244.0.8/32"), Via: via("192.0.2.254")},  // an address of this node's block, on no other node
		{Dst: netip.MustParsePrefix("10.244.0.64/26"), Via: via("192.0.2.254")}, // connected directly
		{Dst: netip.MustParsePrefix("10.244.0.80/28"), Via: via("192.0.2.254")}, // a part of that
		{Dst: netip.MustParsePrefix("10.244.0.99/32"), Via: via("192.0.2.254")},
		{Dst: netip.MustParsePrefix("10.244.0.98/32"), Via: via("192.0.2.254")}, // a fixed address of that, now on another node
		{Dst: netip.MustParsePrefix("10.244.0.0/26"), Via: via("192.0.2.254")},  // this node's own block
		{Dst: netip.MustParsePrefix("10.244.0.0/17"), Via: via("192.0.2.254")},  // a router's summary of all blocks
		{Dst: netip.MustParsePrefix("10.244.0.32/27"), Via: via("192.0.2.254")}, // a part of this node's block
		{Dst: netip.MustParsePrefix("0.0.0.0/0"), Via: via("192.0.2.254")},      // outside the network
		{Dst: netip.MustParsePrefix("10.0.0.0/8"), Via: via("192.0.2.254")},
	}
	blue := site(&cluster.Network{Name: "blue", Isolated: true, VNI: 70001, Subnets: network().Subnets})
	blue.In = 1
	fixed := site(network(b{Type: cluster.VXLAN}))
	fixed.Network.MTU = 1280
	fixed.Peers = fixed.Peers[1:]
	fixed.Peers[0].Dst = prefixes("10.244.9.7/32 10.244.9.8/32")
	routed6 := site(network(b{Type: cluster.HostGW}, b{Type: cluster.IPIP}, b{Type: cluster.VXLAN}))
	routed6.Peers[0].Node = node("b", "192.0.2.2/24 2001:db8::2/128")
	alone := site(network())
	alone.Peers = nil
	return map[string]backend.Input{
		"host-gw":          site(network(b{Type: cluster.HostGW})),
		"vxlan":            site(network()),
		"vxlan-direct":     site(network(b{Type: cluster.VXLAN, VNI: 16777215, Port: 4789, Direct: true})),
		"vxlan-over-ipv6":  over6(network()),
		"vxlan-flannel":    flannel,
		"vxlan-flannel-v6": flannel6,
		"vxlan-isolated":   blue,
		"vxlan-addresses":  fixed,
		"wireguard":        site(network(b{Type: cluster.WireGuard})),
		"wireguard-ipv6":   over6(network(b{Type: cluster.WireGuard, Port: 51000})),
		"wireguard-turned": turning,
		"ipip":             site(network(b{Type: cluster.IPIP})),
		"ipip-over-ipv6":   over6(network(b{Type: cluster.IPIP})),
		"bgp":              learned,
		"mix":              site(network(b{Type: cluster.HostGW, When: "direct"}, b{Type: cluster.WireGuard})),
		"host-gw-ipv4":     routed6,
		"alone":            alone,
	}
}

func TestGolden(t *testing.T) {
	t.Parallel()
	for name, in := range goldenInputs() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := backend.Compile(in)
			var b strings.Builder
			fmt.Fprintf(&b, "containers' MTU %d\n", r.MTU)
			for _, p := range in.Peers {
				fmt.Fprintf(&b, "%s by %q\n", p.Node.Name, r.By[p.Node.Name])
			}
			for _, p := range r.Problems {
				fmt.Fprintf(&b, "problem with %s: %v\n", p.Node, p.Err)
			}
			for _, o := range append(r.Objects, backend.Clamp(r.Tunnels)...) {
				fmt.Fprintf(&b, "%s: %s\n", o.Side(), o)
			}
			golden(t, filepath.Join("testdata", name+".golden"), b.String())
		})
	}
}

func golden(t *testing.T, file, have string) {
	t.Helper()
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(file, []byte(have), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || string(want) != have {
		t.Errorf("%s (%v):\n%s\nwant\n%s", file, err, have, want)
	}
}
