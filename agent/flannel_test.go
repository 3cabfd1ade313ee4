package agent

import (
	"encoding/json"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/agent/cluster"
)

// TestFlannelLeaseInKubernetes checks that a node publishes a lease as long as another one is managed by flanneld, and that
// its hardware addresses outlive the lease.
func TestFlannelLeaseInKubernetes(t *testing.T) {
	t.Parallel()
	const former = `, "flannel": {"type": "vxlan", "mac": "02:00:00:00:00:01", "v6": "02:00:00:00:00:61"}, "tunnel": "02:00:00:00:00:01", "tunnel6": "02:00:00:00:00:61"`
	const ours = `, "tunnel": "02:00:00:00:00:01", "tunnel6": "02:00:00:00:00:61"`
	const lease = `{"publicIP":"198.18.0.1","publicIPv6":"2001:db8::1","type":"vxlan","vni":7,"mac":"02:00:00:00:00:01","mac6":"02:00:00:00:00:61"}`
	for _, c := range []struct{ what, self, other, want string }{
		{"the first node of the switch", former, `, "flannel": {"type": "vxlan"}`, lease},
		{"the last node of the switch", former, "", ""},
		{"after the switch", ours, "", ""},
		{"another node goes back", ours, `, "flannel": {"type": "vxlan", "problem": "invalid"}`, lease},
	} {
		s := cluster.NewSnapshot()
		s.Set("networks/default", []byte(`{"subnets": [{"cidr": "10.244.0.0/16", "assign": "podCIDR"}, {"cidr": "fd00::/56", "assign": "podCIDR"}], "backends": [{"type": "vxlan", "vni": 7}]}`))
		s.Set("nodes/a", []byte(`{"id": "x", "addresses": ["198.18.0.1/24"]`+c.self+"}"))
		s.Set("nodes/b", []byte(`{"id": "y", "addresses": ["198.18.0.2/24"]`+c.other+"}"))
		self := &cluster.Node{Name: "a", Addresses: []netip.Prefix{netip.MustParsePrefix("198.18.0.1/24"), netip.MustParsePrefix("2001:db8::1/64")}}
		setFlannelLease(s, self)
		got := ""
		if self.FlannelLease != nil {
			raw, err := json.Marshal(self.FlannelLease)
			if err != nil {
				t.Fatal(err)
			}
			got = string(raw)
		}
		if got != c.want || self.Tunnel != "02:00:00:00:00:01" || self.Tunnel6 != "02:00:00:00:00:61" {
			t.Errorf("%s: the lease is %s and the hardware addresses are %s and %s, want %s", c.what, got, self.Tunnel, self.Tunnel6, c.want)
		}
	}
}
