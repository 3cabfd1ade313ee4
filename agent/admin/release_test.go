package admin

import (
	"net/netip"
	"testing"
)

// TestReleaseAddressShortensItsPodsList releases both fixed addresses of a pod. Then nothing of the pod is left.
func TestReleaseAddressShortensItsPodsList(t *testing.T) {
	t.Parallel()
	const slot = "fixed/default/ns/p/eth0"
	s := newStore(t, map[string]string{
		"networks/default":           `{"subnets": [{"cidr": "10.1.0.0/24", "assign": "cluster"}]}`,
		"addresses/default/10.1.0.5": `{"owner": "ns/p", "fixed": true, "ifName": "eth0"}`,
		"addresses/default/10.1.0.6": `{"owner": "ns/p", "fixed": true, "ifName": "eth0"}`,
		slot:                         `{"ips": ["10.1.0.5", "10.1.0.6"]}`,
	})
	for _, step := range []struct{ ip, left string }{{"10.1.0.5", `{"ips":["10.1.0.6"]}`}, {"10.1.0.6", ""}} {
		if _, err := ReleaseAddress(t.Context(), s, "default", netip.MustParseAddr(step.ip), false); err != nil {
			t.Fatal(err)
		}
		e, err := s.Get(t.Context(), slot)
		if string(e.Value) != step.left || (err == nil) != (step.left != "") {
			t.Errorf("after the release of %s the pod has %s, %v, want %q", step.ip, e.Value, err, step.left)
		}
	}
	if left := keys(t, s, "addresses/"); left != "" {
		t.Errorf("addresses: %s", left)
	}
}
