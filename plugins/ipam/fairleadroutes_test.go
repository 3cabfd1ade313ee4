package ipam

import (
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/ipam"
)

// TestFairleadDefaultRoute checks which routes a configuration without routes gets.
func TestFairleadDefaultRoute(t *testing.T) {
	t.Parallel()
	n := &local.Network{Routes: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}}
	ips := []ipam.IP{{Address: netip.MustParsePrefix("10.0.0.5/24")}}
	for _, c := range []struct {
		conf, ifName string
		want         []string
	}{
		{"", "eth0", []string{"10.0.0.0/8", "0.0.0.0/0"}},
		{"", "net1", []string{"10.0.0.0/8"}},
		{`, "defaultRoute": true`, "net1", []string{"10.0.0.0/8", "0.0.0.0/0"}},
		{`, "defaultRoute": false`, "eth0", []string{"10.0.0.0/8"}},
		{`, "defaultRoute": true, "routes": []`, "eth0", nil},
	} {
		f, err := parseFairlead([]byte(`{"cniVersion": "1.0.0", "name": "n", "ipam": {"type": "fairlead-ipam"`+c.conf+`}}`), "")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range f.result(n, ips, c.ifName).Routes {
			got = append(got, r.Dst.String())
		}
		if len(got) != len(c.want) {
			t.Errorf("%s of %s: routes %v, want %v", c.conf, c.ifName, got, c.want)
			continue
		}
		for i := range got {
			if got[i] != c.want[i] {
				t.Errorf("%s of %s: routes %v, want %v", c.conf, c.ifName, got, c.want)
			}
		}
	}
}
