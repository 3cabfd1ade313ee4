package backend_test

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/backend"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/kernel"
)

// TestInvalidPeerKey checks that a node with an invalid or duplicate key is reported and that the others are
// connected. A device would reject all peers for one invalid key.
func TestInvalidPeerKey(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(self, peer *cluster.Node)
		want   string // in the peer's problem; "": connected
	}{
		"good":                {func(_, p *cluster.Node) {}, ""},
		"no base64":           {func(_, p *cluster.Node) { p.WireGuard = "x\n" }, `key of node m: "x\n" is not a WireGuard key`},
		"short":               {func(_, p *cluster.Node) { p.WireGuard = "AAAA" }, `key of node m: "AAAA" is not a WireGuard key`},
		"long":                {func(_, p *cluster.Node) { p.WireGuard = strings.Repeat("A", 4000) }, "key of node m: "},
		"bad previous":        {func(_, p *cluster.Node) { p.Previous = "AAAA" }, `key of node m: "AAAA" is not a WireGuard key`},
		"another's":           {func(_, p *cluster.Node) { p.WireGuard = key("b") }, "m has the same key as b"},
		"another's previous":  {func(_, p *cluster.Node) { p.Previous = key("b") }, "m has the same key as b"},
		"this node's":         {func(_, p *cluster.Node) { p.WireGuard = key("a") }, "m has the same key as a"},
		"this node's before":  {func(s, p *cluster.Node) { s.Previous, p.WireGuard = key("o"), key("o") }, "m has the same key as a"},
		"in other words":      {func(_, p *cluster.Node) { p.WireGuard = strings.Repeat("b", 42) + "B=" }, "m has the same key as b"},
		"a new name":          {func(_, p *cluster.Node) { p.WireGuard, p.Addresses = key("b"), prefixes("192.0.2.2/24") }, ""},
		"at our own address":  {func(_, p *cluster.Node) { p.Addresses = prefixes("192.0.2.1/24") }, "m has this node's own address 192.0.2.1"},
		"at our own, by IPv6": {func(_, p *cluster.Node) { p.Addresses = prefixes("192.0.2.8/24 2001:db8::1/64") }, "m has this node's own address 2001:db8::1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := site(network(cluster.Backend{Type: cluster.WireGuard}))
			m := node("m", "198.51.100.9/24")
			m.WireGuard = key("mm")
			c.change(in.Self, m)
			in.Peers = append(in.Peers, backend.Peer{Node: m, Dst: prefixes("10.244.7.0/26")})
			r := backend.Compile(in)
			text := ""
			for _, o := range r.Objects {
				text += o.String() + "\n"
			}
			joined := strings.Contains(text, "ip route add 10.244.7.0/26")
			if c.want == "" && (len(r.Problems) > 0 || !joined) ||
				c.want != "" && (len(r.Problems) != 1 || r.Problems[0].Node != "m" || !strings.Contains(r.Problems[0].Err.Error(), c.want) || len(r.Problems[0].Err.Error()) > 300 || joined) {
				t.Errorf("problems %v, want %q; wanted is\n%s", r.Problems, c.want, text)
			}
			keys := map[string]bool{}
			for _, p := range r.Objects[0].(*kernel.WireGuard).Peers {
				if keys[p.PublicKey] {
					t.Errorf("two peers of one key: %s", text)
				}
				keys[p.PublicKey] = true
			}
			for _, want := range []string{"ip route add 10.244.0.64/26", "ip route add 10.244.0.128/26"} {
				if !strings.Contains(text, want) || !keys[key("b")] || !keys[key("c")] {
					t.Errorf("no %s, or no peer: %s", want, text)
				}
			}
		})
	}
}
