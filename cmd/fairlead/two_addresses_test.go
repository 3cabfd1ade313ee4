package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestTwoAddressesOfOneSubnet attaches a container with two addresses of one subnet. Its objects include shared ones twice.
// CHECK finds no difference, and DEL and GC remove everything.
func TestTwoAddressesOfOneSubnet(t *testing.T) {
	t.Parallel()
	addresses := map[string]string{
		"IPv4": `{"address": "10.9.0.5/24", "gateway": "10.9.0.1"}, {"address": "10.9.0.6/24", "gateway": "10.9.0.1"}`,
		"IPv6": `{"address": "fd09::5/64", "gateway": "fd09::1"}, {"address": "fd09::6/64", "gateway": "fd09::1"}`,
		"both": `{"address": "10.9.0.5/24", "gateway": "10.9.0.1"}, {"address": "10.9.0.6/24", "gateway": "10.9.0.1"}, {"address": "fd09::5/64", "gateway": "fd09::1"}, {"address": "fd09::6/64", "gateway": "fd09::1"}`,
	}
	for _, typ := range []string{"bridge", "ptp"} {
		for _, backend := range []string{"nftables", "iptables"} {
			for family, list := range addresses {
				t.Run(fmt.Sprint(typ, ", ", backend, ", ", family), func(t *testing.T) {
					t.Parallel()
					s := newSiteOf(t, fmt.Sprintf(`{"cniVersion": "1.1.0", "name": "n", "plugins": [
						{"type": %q, "isGateway": true, "ipMasq": true, "ipMasqBackend": %q, "antiSpoof": true, "ipam": {"type": "static", "addresses": [%s]}},
						{"type": "portmap", "snat": true, "capabilities": {"portMappings": true}}, {"type": "firewall"}]}`, typ, backend, list))
					caps := s.withCaps(`{"portMappings":[{"hostPort":8080,"containerPort":80,"protocol":"tcp"}]}`)
					s.sh("ip netns add one")
					clean := func(after string) {
						t.Helper()
						for _, cmd := range [][]string{{"nft", "list", "ruleset"}, {"iptables-save"}, {"ip6tables-save"}, {"find", "/run/fairlead/attach", "-type", "f"}} {
							out := kerneltest.Run(t, cmd...)
							for _, left := range []string{"10.9.0.", "fd09::", "eth0"} {
								if strings.Contains(out, left) {
									t.Errorf("%s: %v shows %s:\n%s", after, cmd, left, out)
								}
							}
						}
					}
					caps.ok("add", "n", "one")
					caps.ok("check", "n", "one")
					caps.ok("del", "n", "one")
					clean("after DEL")
					caps.ok("add", "n", "one")
					s.sh("ip netns del one")
					s.ok("gc", "--all")
					clean("after GC")
				})
			}
		}
	}
}
