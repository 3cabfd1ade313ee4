package plugin

import (
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/cni"
)

// An address that no interface can have and a gateway of the other family are errors, whatever IPAM plugin returned
// them.
func TestUsable(t *testing.T) {
	t.Parallel()
	addr := func(p string) *cni.Result {
		return &cni.Result{IPs: []cni.IP{{Address: netip.MustParsePrefix(p)}}}
	}
	gateway := func(p, gw string) *cni.Result {
		r := addr(p)
		r.IPs[0].Gateway = netip.MustParseAddr(gw)
		return r
	}
	route := func(dst, gw string) *cni.Result {
		return &cni.Result{Routes: []cni.Route{{Dst: netip.MustParsePrefix(dst), GW: netip.MustParseAddr(gw)}}}
	}
	for name, tt := range map[string]struct {
		result *cni.Result
		want   string
	}{
		"unicast":        {addr("10.1.0.5/24"), ""},
		"in 0.0.0.0/8":   {addr("0.0.0.5/8"), ""},
		"unspecified":    {addr("0.0.0.0/24"), "address 0.0.0.0/24: want a unicast address"},
		"multicast":      {addr("ff02::5/64"), "address ff02::5/64: want a unicast address"},
		"mapped":         {addr("::ffff:10.0.0.2/64"), "address ::ffff:10.0.0.2/64: want an IPv4 or an IPv6 address"},
		"gateway":        {gateway("fd00::2/64", "fd00::1"), ""},
		"other gateway":  {gateway("fd00::2/64", "10.0.0.1"), "address fd00::2/64 with gateway 10.0.0.1: want a gateway of the same address family"},
		"same family":    {route("10.9.0.0/16", "10.1.0.1"), ""},
		"no gateway":     {route("fd09::/64", "::"), ""},
		"another family": {route("10.9.0.0/16", "fd01::1"), "route to 10.9.0.0/16 via fd01::1: want a gateway of the same address family"},
	} {
		got := ""
		if err := usable(tt.result); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}
