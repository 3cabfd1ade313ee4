package desired

import (
	"fmt"
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
	if !w.NoBlocks || !strings.Contains(fmt.Sprint(w.Invalid), "10.9.0.0-26") {
		t.Errorf("no blocks: %t; invalid: %v", w.NoBlocks, w.Invalid)
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
		if is := node == "b"; w.NoBlocks != is || strings.Contains(fmt.Sprint(w.Problems), "10.244.1.0/24 of this Node also belongs to node a") != is {
			t.Errorf("%s: no blocks: %t; problems: %v", node, w.NoBlocks, w.Problems)
		}
	}
}
