package agent

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"unicode"

	"github.com/fairlead/fairlead/agent/cluster"
)

// What one key of the store says wrongly takes nothing from the others: it is left out
// by name, and all else is as without it.
func TestSound(t *testing.T) {
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
		"blocks/default/10.244.2.0-27":      {evil, "have another length"}, // half of b's
		"blocks/default/10.244.1.5-32":      {evil, "have another length"}, // this node's
		"blocks/blue/10.244.1.0-26":         {evil, "in no subnet of network blue"},
		"blocks/default/10.245.1.0-26":      {`{"node": "a", "subnet": "10.245.1.0/24"}`, "in no subnet of network default"},
		"addresses/default/192.0.2.2":       {`{"owner": "x", "node": "c"}`, "in no subnet of network default"},
		"addresses/default/10.244.2.7":      {`{"owner": "x", "node": "c"}`, "it is in blocks/default/10.244.2.0-26"},
		"nodes/evil":                        {`{"id": "9", "addresses": ["10.244.2.9/24"]}`, "its address 10.244.2.9 is in blocks/default/10.244.2.0-26"},
		"nodes/x\x1b[2J":                    {`{"id": "9", "addresses": ["192.0.2.9/24"]}`, "want letters"},
		"nodes/" + strings.Repeat("n", 200): {`{"id": "9", "addresses": ["192.0.2.9/24"]}`, "want letters"},
		"networks/huge":                     {`{"subnets": [{"cidr": "0.0.0.0/0"}], "nat": true}`, "subnets[0].cidr is 0.0.0.0/0"},
		"networks/x\ny":                     {`{"subnets": [{"cidr": "10.77.0.0/16"}]}`, "its name is"},
		"networks/big":                      {`{"subnets": [{"cidr": "10.77.0.0/16"}], "vni": 1e99}`, "read networks/big"},
		"networks/zed":                      {`{"isolated": true, "vni": 5000, "subnets": [{"cidr": "10.77.0.0/16"}]}`, "its vni 5000 is network blue's"},
		"networks/aaa":                      {`{"isolated": true, "vni": 1, "subnets": [{"cidr": "10.77.0.0/16"}]}`, "its vni 1 is network default's"},
		"blocks/default/\xff":               {evil, "names no block"},
	} {
		t.Run(fmt.Sprintf("%.30q", key), func(t *testing.T) {
			t.Parallel()
			s := snapshotOf(t, twoNodes+isolatedNets)
			s.Set(key, []byte(want[0]))
			w := Compile(s, self, host())
			if len(w.Left) != 1 || !strings.Contains(w.Left[0], fmt.Sprintf("%q", key)) || !strings.Contains(w.Left[0], want[1]) {
				t.Errorf("left out is %q, want %s", w.Left, want[1])
			}
			if strings.ContainsFunc(w.Left[0], func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Errorf("a terminal would obey %q", w.Left[0])
			}
			if got := text(w); got != without {
				t.Errorf("something else follows from it:\n%s\nand not\n%s", got, without)
			}
		})
	}
}

// This node's own address is in no block, whoever has that.
func TestSoundHere(t *testing.T) {
	t.Parallel()
	s := snapshotOf(t, `
nodes/a {"id": "1", "addresses": ["10.0.2.9/24"]}
nodes/b {"id": "2", "addresses": ["10.0.9.9/24"]}
networks/default {"subnets": [{"cidr": "10.0.0.0/16"}]}
blocks/default/10.0.2.0-26 {"node": "b", "subnet": "10.0.0.0/16"}
blocks/default/10.0.3.0-26 {"node": "b", "subnet": "10.0.0.0/16"}`)
	w := Compile(s, s.Nodes["a"], host())
	if len(w.Left) != 1 || !strings.Contains(w.Left[0], `"blocks/default/10.0.2.0-26" of the store is not heeded: this node has the address 10.0.2.9`) {
		t.Errorf("left out is %q", w.Left)
	}
	if got := text(w); strings.Contains(got, "10.0.2.0") || !strings.Contains(got, "10.0.3.0/26") {
		t.Errorf("wanted is\n%s", got)
	}
}

// However long the lists are, a state fits a line at the socket.
func TestShort(t *testing.T) {
	t.Parallel()
	long := make([]string, 5000)
	s := &State{Why: long, Problems: long[:told], Left: long[:told+1]}
	if got := s.short(); len(got.Why) != told+1 || got.Why[told] != "and 4900 more" || len(got.Problems) != told || got.Left[told] != "and 1 more" || len(s.Why) != 5000 {
		t.Errorf("%d, %d and %d words: %q", len(got.Why), len(got.Problems), len(got.Left), got.Why[told:])
	}
}
