package backend_test

import (
	"encoding/json"
	"testing"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestClampMSS checks that two endpoints whose MTU is larger than the tunnel's between them agree on segments that fit
// it.
func TestClampMSS(t *testing.T) {
	t.Parallel()
	kerneltest.Needs(t, "vxlan")
	hosts := lan(t, true, false)[:2]
	n := network(cluster.Backend{Type: cluster.VXLAN})
	for _, h := range hosts {
		h.contain(t, 1500)
		h.join(t, n, hosts)
	}
	server(t, hosts[1].container)
	for address, most := range map[string]int{hosts[1].four.String(): 1450 - 40, hosts[1].six.String(): 1450 - 60} {
		var result struct {
			Start struct {
				MSS int `json:"tcp_mss_default"`
			} `json:"start"`
		}
		out := kerneltest.In(t, hosts[0].container, "iperf3", "-J", "-n", "100K", "-c", address)
		if err := json.Unmarshal([]byte(out), &result); err != nil {
			t.Fatal(err)
		}
		if mss := result.Start.MSS; mss > most || mss < most-100 {
			t.Errorf("to %s: segments of %d bytes, want at most %d", address, mss, most)
		}
	}
}
