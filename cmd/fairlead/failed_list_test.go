package main

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestFailedFirstPlugin adds to a network whose first plugin's objects the kernel refuses. Each later plugin asks about
// them, and may do without an answer. The ADD fails with the first plugin's error, and leaves nothing.
func TestFailedFirstPlugin(t *testing.T) {
	t.Parallel()
	const ipam = `"ipam": {"type": "host-local", "subnet": "10.9.0.0/24", "routes": [{"dst": "0.0.0.0/0"}]}}`
	firsts := map[string]string{
		"bridge": `{"type": "bridge", "bridge": "br0", "isGateway": true, "ipMasq": true, ` + ipam,
		"ptp":    `{"type": "ptp", "ipMasq": true, ` + ipam,
		"tap":    `{"type": "tap", ` + ipam,
	}
	laters := map[string]string{
		"portmap":      `{"type": "portmap", "capabilities": {"portMappings": true}}`,
		"portmap snat": `{"type": "portmap", "masqAll": true, "capabilities": {"portMappings": true}}`,
		"firewall":     `{"type": "firewall"}`,
		"same bridge":  `{"type": "firewall", "ingressPolicy": "same-bridge"}`,
		"bandwidth":    `{"type": "bandwidth", "ingressRate": 1000000, "ingressBurst": 1000000, "egressRate": 1000000, "egressBurst": 1000000}`,
		"tuning":       `{"type": "tuning", "mtu": 1400, "sysctl": {"net.ipv4.conf.IFNAME.arp_filter": "1"}}`,
		"sbr":          `{"type": "sbr"}`,
		"loopback":     `{"type": "loopback"}`,
		"several":      `{"type": "tuning", "promisc": true}, {"type": "sbr"}, {"type": "portmap", "capabilities": {"portMappings": true}}`,
	}
	for first, conf := range firsts {
		for later, more := range laters {
			if later == "same bridge" && first != "bridge" {
				continue
			}
			t.Run(first+", "+later, func(t *testing.T) {
				t.Parallel()
				s := newSiteOf(t, `{"cniVersion": "1.1.0", "name": "n", "plugins": [`+conf+`, `+more+`]}`)
				s.sh("ip netns add one\nip -n one link add eth0 type veth peer name other0")
				before := kerneltest.Dump(t, "")
				code, out, errs := s.withCaps(`{"portMappings":[{"hostPort":8080,"containerPort":80,"protocol":"tcp"}]}`).fairlead("add", "n", "one")
				if code == 0 || !strings.Contains(errs, "eth0") || !strings.Contains(errs, "exists") {
					t.Errorf("exit code %d, want an error about eth0\n%s%s", code, out, errs)
				}
				if !strings.Contains(errs, `plugin type="`+first+`"`) {
					t.Errorf("the error does not name %s: %s", first, errs)
				}
				s.noRecords()
				if after := kerneltest.Dump(t, ""); strings.Contains(after, "10.9.0") || strings.Contains(after, "8080") {
					t.Errorf("before:\n%s\nafter:\n%s", before, after)
				}
			})
		}
	}
}
