package desired

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/agent/backend"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/kernel"
)

// TestFlannelPeers checks which nodes are peers, and by which data, given flannel's keys and ours.
func TestFlannelPeers(t *testing.T) {
	t.Parallel()
	const value = `{"PublicIP":"198.18.0.%d","PublicIPv6":null,"BackendType":"vxlan","BackendData":{"VNI":1,"VtepMAC":"02:00:00:00:00:0%d"}%s}`
	s := cluster.NewSnapshot()
	set := func(key, format string, args ...any) { s.Set(key, fmt.Appendf(nil, format, args...)) }
	set("networks/default", `{"subnets": [{"cidr": "10.244.0.0/16", "block": 24}]}`)
	for i, name := range []string{"self", "ours", "back", "removed"} {
		if name != "removed" {
			set("nodes/"+name, `{"id": "x", "addresses": ["198.18.0.%d/24"]}`, i+1)
		}
		set(fmt.Sprintf("blocks/default/10.244.%d.0-24", i+1), `{"node": %q, "subnet": "10.244.0.0/16"}`, name)
	}
	lease := func(subnet, ip int, ours string) {
		if ours != "" {
			ours = `,"Fairlead":"` + ours + `"`
		}
		set(fmt.Sprintf("flannel/subnets/10.244.%d.0-24", subnet), value, ip, ip, ours)
	}
	lease(1, 1, "self")
	lease(2, 2, "ours")
	lease(3, 3, "") // the node went back to flanneld
	lease(4, 4, "removed")
	lease(5, 5, "")     // a flannel node
	lease(6, 6, "soon") // its block has not arrived yet
	lease(7, 1, "")     // this host's former flanneld
	self := &cluster.Node{Name: "self", Addresses: []netip.Prefix{netip.MustParsePrefix("198.18.0.1/24")}}
	var got string
	for _, p := range peersOf(s, s.Networks["default"], self) {
		mac := p.Node.Tunnel
		if p.Node.Flannel != nil {
			mac = p.Node.Flannel.MAC
		}
		got += fmt.Sprintln(p.Node.Name, p.Node.Addresses, p.Dst, mac)
	}
	want := `ours [198.18.0.2/24] [10.244.2.0/24] 02:00:00:00:00:02
flannel 198.18.0.3 [198.18.0.3/32] [10.244.3.0/24] 02:00:00:00:00:03
flannel 198.18.0.5 [198.18.0.5/32] [10.244.5.0/24] 02:00:00:00:00:05
flannel 198.18.0.6 [198.18.0.6/32] [10.244.6.0/24] 02:00:00:00:00:06
`
	if got != want {
		t.Errorf("peers are\n%swant\n%s", got, want)
	}
	own := withFlannelLease(s, self, s.BlocksOf("default", "self"))
	if fmt.Sprint(own) != "[10.244.1.0/24]" {
		t.Errorf("the node's own are %v", own)
	}
}

// TestFlannelNodes checks the peers of a cluster whose flannel nodes have annotations, and which of them cannot be reached.
func TestFlannelNodes(t *testing.T) {
	t.Parallel()
	s := cluster.NewSnapshot()
	s.Set("networks/default", []byte(`{"subnets": [{"cidr": "10.244.0.0/16", "assign": "podCIDR"}], "backends": [{"type": "vxlan"}]}`))
	for i, row := range []struct{ name, more string }{
		{"self", ""},
		{"ours", `, "tunnel": "02:00:00:00:00:02"`},
		{"theirs", `, "flannel": {"type": "vxlan", "mac": "02:00:00:00:00:03"}, "tunnel": "02:00:00:00:00:03"`},
		{"nomac", `, "flannel": {"type": "vxlan"}`},
		{"udp", `, "flannel": {"type": "udp"}`},
		{"broken", `, "flannel": {"type": "vxlan", "problem": "the annotation is invalid"}`},
	} {
		s.Set("nodes/"+row.name, fmt.Appendf(nil, `{"id": "x", "addresses": ["198.18.0.%d/24"], "podCIDRs": ["10.244.%d.0/24"]%s}`, i+1, i+1, row.more))
	}
	self := &cluster.Node{Name: "self", Addresses: []netip.Prefix{netip.MustParsePrefix("198.18.0.1/24")}, Tunnel: "02:00:00:00:00:01"}
	w := Compile(s, self, Host{Underlay: backend.Underlay{Link: "eth0", Index: 2, MTU: 1500}, Addresses: self.Addresses, Flannel: true})
	var got string
	for _, x := range kernel.Of[*kernel.VXLAN](w.Objects) {
		got += fmt.Sprintln(x.Name, x.MAC)
	}
	for _, x := range kernel.Of[*kernel.FDB](w.Objects) {
		got += fmt.Sprintln(x.MAC, x.Dst)
	}
	for _, p := range w.Problems {
		got += fmt.Sprintln(p.Node+":", p.Err)
	}
	want := `flannel.1 02:00:00:00:00:01
02:00:00:00:00:02 198.18.0.2
02:00:00:00:00:03 198.18.0.3
broken: vxlan: broken is a flannel node: the annotation is invalid
udp: vxlan: udp is a flannel node with backend udp
nomac: vxlan: flannel's lease of nomac: "" is not a hardware address: want six bytes, like 02:00:00:00:00:01
`
	if got != want || !hasFlannel(s) {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
