package desired

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"unicode"

	"github.com/fairlead/fairlead/agent/cluster"
)

// TestInvalidKeysAreIsolated checks that one invalid key is reported by name and does not change anything else.
func TestInvalidKeysAreIsolated(t *testing.T) {
	t.Parallel()
	self := &cluster.Node{Name: "a", Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24")}}
	const evil = `{"node": "c", "subnet": "10.244.0.0/16"}`
	base := snapshotOf(t, twoNodes+isolatedNets)
	without := text(Compile(base, self, host()))
	for key, want := range map[string][2]string{
		"blocks/default/0.0.0.0-0":          {evil, "in no subnet of network default"},
		"blocks/default/192.0.2.0-26":       {evil, "in no subnet of network default"},
		"blocks/default/127.0.0.0-26":       {evil, "in no subnet of network default"},
		"blocks/default/10.244.0.0-16":      {evil, "have another length"},
		"blocks/default/10.244.2.0-27":      {evil, "have another length"}, // half of node b's block
		"blocks/default/10.244.1.5-32":      {evil, "have another length"}, // in this node's block
		"blocks/blue/10.244.1.0-26":         {evil, "in no subnet of network blue"},
		"blocks/default/10.245.1.0-26":      {`{"node": "a", "subnet": "10.245.1.0/24"}`, "in no subnet of network default"},
		"addresses/default/192.0.2.2":       {`{"owner": "x", "node": "c"}`, "in no subnet of network default"},
		"addresses/default/10.244.2.7":      {`{"owner": "x", "node": "c"}`, "it is in blocks/default/10.244.2.0-26"},
		"nodes/evil":                        {`{"id": "9", "addresses": ["10.244.2.9/24"]}`, "its address 10.244.2.9 is in blocks/default/10.244.2.0-26"},
		"nodes/x\x1b[2J":                    {`{"id": "9", "addresses": ["192.0.2.9/24"]}`, "want letters"},
		"nodes/" + strings.Repeat("n", 249): {`{"id": "9", "addresses": ["192.0.2.9/24"]}`, "want letters"},
		"networks/huge":                     {`{"subnets": [{"cidr": "0.0.0.0/0"}], "nat": true}`, "subnets[0].cidr is 0.0.0.0/0"},
		"networks/x\ny":                     {`{"subnets": [{"cidr": "10.77.0.0/16"}]}`, "the name is"},
		"networks/big":                      {`{"subnets": [{"cidr": "10.77.0.0/16"}], "vni": 1e99}`, "read networks/big"},
		"networks/zed":                      {`{"isolated": true, "vni": 5000, "subnets": [{"cidr": "10.77.0.0/16"}]}`, "its vni 5000 belongs to network blue"},
		"networks/aaa":                      {`{"isolated": true, "vni": 1, "subnets": [{"cidr": "10.77.0.0/16"}]}`, "its vni 1 belongs to network default"},
		"blocks/default/\xff":               {evil, "names no block"},
		"flannel/subnets/10.244.77.0-26":    {`{"PublicIP": "10.244.77.5", "BackendType": "vxlan", "BackendData": {"VtepMAC": "02:00:00:00:00:09"}}`, "its address 10.244.77.5 is in flannel/subnets/10.244.77.0-26"},
		"flannel/subnets/10.244.78.0-26":    {`{"PublicIP": "10.244.2.9", "BackendType": "vxlan", "BackendData": {"VtepMAC": "02:00:00:00:00:09"}}`, "its address 10.244.2.9 is in blocks/default/10.244.2.0-26"},
	} {
		t.Run(fmt.Sprintf("%.30q", key), func(t *testing.T) {
			t.Parallel()
			s := snapshotOf(t, twoNodes+isolatedNets)
			s.Set(key, []byte(want[0]))
			w := Compile(s, self, host())
			if len(w.Invalid) != 1 || !strings.Contains(w.Invalid[0], fmt.Sprintf("%q", key)) || !strings.Contains(w.Invalid[0], want[1]) {
				t.Errorf("reported %q, want %s", w.Invalid, want[1])
			}
			if strings.ContainsFunc(w.Invalid[0], func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Errorf("%q contains control characters", w.Invalid[0])
			}
			if got := text(w); got != without {
				t.Errorf("the state with the invalid key is\n%s\nwithout it\n%s", got, without)
			}
		})
	}
}

// TestReportsOverlap checks that a network that overlaps the default one is reported. Its containers keep their addresses.
func TestReportsOverlap(t *testing.T) {
	t.Parallel()
	s := snapshotOf(t, twoNodes+`
networks/over {"subnets": [{"cidr": "10.244.3.0/24"}], "nat": true}`)
	w := Compile(s, s.Nodes["a"], host())
	const want = `ignored key "networks/over" in the store: its subnet 10.244.3.0/24 overlaps with 10.244.0.0/16 of network default`
	if len(w.Invalid) != 1 || !strings.HasPrefix(w.Invalid[0], want) || w.Bad["networks/over"] == nil {
		t.Errorf("reported %q, want %s", w.Invalid, want)
	}
	if !strings.Contains(text(w), "10.244.3.0") {
		t.Errorf("the network has no rules:\n%s", text(w))
	}
}

// TestBlockWithThisNodesAddress checks that a block with this node's address is ignored, whoever owns it.
func TestBlockWithThisNodesAddress(t *testing.T) {
	t.Parallel()
	s := snapshotOf(t, `
nodes/a {"id": "1", "addresses": ["10.0.2.9/24"]}
nodes/b {"id": "2", "addresses": ["10.0.9.9/24"]}
networks/default {"subnets": [{"cidr": "10.0.0.0/16"}]}
blocks/default/10.0.2.0-26 {"node": "b", "subnet": "10.0.0.0/16"}
blocks/default/10.0.3.0-26 {"node": "b", "subnet": "10.0.0.0/16"}`)
	w := Compile(s, s.Nodes["a"], host())
	if len(w.Invalid) != 1 || !strings.Contains(w.Invalid[0], `ignored key "blocks/default/10.0.2.0-26" in the store: this node's address 10.0.2.9 is in it`) {
		t.Errorf("reported %q", w.Invalid)
	}
	if got := text(w); strings.Contains(got, "10.0.2.0") || !strings.Contains(got, "10.0.3.0/26") {
		t.Errorf("the desired state is\n%s", got)
	}
}

// TestBlockOutsideSubnets checks that a node whose only block is in no subnet of the network counts as one without
// blocks, and that the block is reported.
func TestBlockOutsideSubnets(t *testing.T) {
	t.Parallel()
	s := cluster.NewSnapshot()
	s.Set("networks/default", []byte(`{"subnets": [{"cidr": "10.244.0.0/16"}]}`))
	s.Set("blocks/default/10.9.0.0-26", []byte(`{"node": "a", "subnet": "10.9.0.0/16"}`))
	w := Compile(s, &cluster.Node{Name: "a"}, Host{})
	if w.NoBlocks == nil || !strings.Contains(fmt.Sprint(w.Invalid), "10.9.0.0-26") {
		t.Errorf("no blocks: %v; invalid: %v", w.NoBlocks, w.Invalid)
	}
}

// TestNoBlocksOfOneFamily checks that a node is not ready if a container would get no address of one family: requests
// without a pool want one of each.
func TestNoBlocksOfOneFamily(t *testing.T) {
	t.Parallel()
	const pod, block = `{"subnets": [{"cidr": "10.244.0.0/16", "assign": "podCIDR"}, {"cidr": "fd00::/56", "assign": "podCIDR"}]}`, `{"subnets": [{"cidr": "10.244.0.0/16"}, {"cidr": "fd00::/56"}]}`
	for _, c := range []struct{ network, podCIDRs, want string }{
		{pod, `["10.244.1.0/24", "fd00:0:0:1::/64"]`, ""},
		{pod, `["10.244.1.0/24"]`, "no podCIDR of its own in fd00::/56"},
		{pod, `["fd00:0:0:1::/64"]`, "no podCIDR of its own in 10.244.0.0/16"},
		{pod, `[]`, "no podCIDR of its own in 10.244.0.0/16"},
		{block, `[]`, "no addresses of 10.244.0.0/16 yet"},
		{`{"subnets": [{"cidr": "10.244.0.0/16", "assign": "podCIDR"}, {"cidr": "10.245.0.0/16", "assign": "podCIDR"}, {"cidr": "fd00::/56", "name": "six"}]}`, `["10.245.1.0/24"]`, ""},
		{`{"subnets": [{"cidr": "10.244.0.0/16", "assign": "cluster"}]}`, `[]`, ""},
		{`{"subnets": [{"cidr": "10.244.0.0/16", "assign": "podCIDR"}, {"cidr": "fd00::/64", "exclude": ["fd00::/64"]}]}`, `["10.244.1.0/24"]`, ""},
		{`{"subnets": [{"cidr": "fd00::/64", "exclude": ["fd00::/64"]}, {"cidr": "fd01::/64", "exclude": ["fd01::/65"]}]}`, `[]`, "no addresses of fd01::/64 yet"},
	} {
		s := cluster.NewSnapshot()
		s.Set("networks/default", []byte(c.network))
		s.Set("nodes/a", []byte(`{"podCIDRs": `+c.podCIDRs+`}`))
		w := Compile(s, &cluster.Node{Name: "a"}, Host{})
		if (w.NoBlocks == nil) != (c.want == "") || w.NoBlocks != nil && !strings.Contains(w.NoBlocks.Error(), c.want) {
			t.Errorf("%s with %s: %v, want %q", c.network, c.podCIDRs, w.NoBlocks, c.want)
		}
	}
}

// TestBlockInPodCIDRs checks that a block that a node claimed in a subnet whose ranges Kubernetes gives nodes captures no
// packets: neither a part of another node's podCIDR nor all of it. The same holds where addresses are assigned one by one.
func TestBlockInPodCIDRs(t *testing.T) {
	t.Parallel()
	keys := []string{"networks/default", "nodes/victim", "blocks/default/10.244.1.7-32", "blocks/default/10.244.1.0-24", "blocks/default/10.9.0.0-26"}
	docs := map[string]string{
		keys[0]: `{"subnets": [{"cidr": "10.244.0.0/16", "assign": "podCIDR"}, {"cidr": "10.9.0.0/16", "assign": "cluster", "name": "fixed"}]}`,
		keys[1]: `{"podCIDRs": ["10.244.1.0/24"]}`,
		keys[2]: `{"node": "x", "subnet": "10.244.0.0/16"}`, keys[3]: `{"node": "x", "subnet": "10.244.0.0/16"}`, keys[4]: `{"node": "x", "subnet": "10.9.0.0/16"}`,
	}
	for range 30 {
		s := cluster.NewSnapshot()
		for _, i := range rand.Perm(2 * len(keys)) { // each one twice
			s.Set(keys[i%len(keys)], []byte(docs[keys[i%len(keys)]]))
		}
		valid, bad := Valid(s, &cluster.Node{Name: "self"})
		if len(valid.Blocks) != 1 || valid.Blocks[keys[3]].Node != "victim" || bad[keys[2]] == nil || bad[keys[4]] == nil {
			t.Fatalf("blocks: %+v; invalid: %v", valid.Blocks, bad)
		}
		if n := len(s.Documents()); n != len(keys) {
			t.Errorf("%d documents, want %d", n, len(keys))
		}
		s.Set("nodes/victim", nil)
		if valid, bad = Valid(s, &cluster.Node{Name: "self"}); len(valid.Blocks) != 0 || bad[keys[3]] == nil {
			t.Fatalf("without the Node: blocks: %+v; invalid: %v", valid.Blocks, bad)
		}
		s.Set("nodes/victim", []byte(docs[keys[1]]))
		s.Set(keys[3], nil)
		if b := s.Blocks[keys[3]]; b == nil || b.Node != "victim" {
			t.Fatalf("after the claim was deleted: %+v", b)
		}
	}
}

// TestSharedPodCIDR checks that a node whose podCIDR another Node has, too, says so.
func TestSharedPodCIDR(t *testing.T) {
	t.Parallel()
	s := cluster.NewSnapshot()
	s.Set("networks/default", []byte(`{"subnets": [{"cidr": "10.244.0.0/16", "assign": "podCIDR"}]}`))
	for _, node := range []string{"a", "b"} {
		s.Set("nodes/"+node, []byte(`{"podCIDRs": ["10.244.1.0/24"]}`))
		w := Compile(s, &cluster.Node{Name: node}, Host{})
		if is := node == "b"; (w.NoBlocks != nil) != is || strings.Contains(fmt.Sprint(w.Problems), "10.244.1.0/24 of this Node also belongs to node a") != is {
			t.Errorf("%s: no blocks: %v; problems: %v", node, w.NoBlocks, w.Problems)
		}
	}
}

// TestOverlappingPodCIDRs checks that both Nodes report podCIDRs that overlap and are not equal.
func TestOverlappingPodCIDRs(t *testing.T) {
	t.Parallel()
	s := cluster.NewSnapshot()
	s.Set("networks/default", []byte(`{"subnets": [{"cidr": "10.244.0.0/16", "assign": "podCIDR"}]}`))
	s.Set("nodes/a", []byte(`{"podCIDRs": ["10.244.0.0/23"]}`))
	s.Set("nodes/b", []byte(`{"podCIDRs": ["10.244.1.0/24"]}`))
	s.Set("nodes/c", []byte(`{"podCIDRs": ["10.244.2.0/24"]}`))
	for node, want := range map[string]string{"a": "overlaps with 10.244.1.0/24 of node b", "b": "overlaps with 10.244.0.0/23 of node a", "c": ""} {
		w := Compile(s, &cluster.Node{Name: node}, Host{})
		if got := fmt.Sprint(w.Problems); !strings.Contains(got, want) || want == "" && strings.Contains(got, "overlaps") {
			t.Errorf("%s: %s, want %q", node, got, want)
		}
	}
}
