package main

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestRestoreRefused detaches containers in which a former value cannot be restored any more. DEL removes the attachment
// all the same.
func TestRestoreRefused(t *testing.T) {
	t.Parallel()
	const ipam = `"ipam": {"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}], [{"subnet": "fd09::/64"}]], "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}}`
	bridge, macvlan := `{"type": "bridge", "isGateway": true, `+ipam, `{"type": "macvlan", "master": "up0", `+ipam
	for name, c := range map[string]struct{ plugins, damage string }{
		"link down":         {bridge + `, {"type": "sbr"}`, "one ip link set eth0 down"},
		"no addresses":      {bridge + `, {"type": "sbr"}`, "one ip addr flush dev eth0"},
		"no routes":         {bridge + `, {"type": "sbr"}`, "one ip route flush table all\none ip -6 route flush table all"},
		"no rules":          {bridge + `, {"type": "sbr"}`, "one ip rule flush\none ip -6 rule flush"},
		"no IPv6":           {bridge + `, {"type": "sbr"}`, "one sysctl -qw net.ipv6.conf.eth0.disable_ipv6=1"},
		"smaller parent":    {macvlan + `, {"type": "tuning", "mtu": 1300, "sysctl": {"net.ipv6.conf.IFNAME.mtu": "1290"}}`, "ip link set up0 mtu 1400"},
		"unset secret":      {bridge + `, {"type": "tuning", "sysctl": {"net.ipv6.conf.IFNAME.stable_secret": "2001:db8::1"}}`, ""},
		"read-only in part": {bridge + `, {"type": "tuning", "sysctl": {"net.core.somaxconn": "100", "net.ipv4.tcp_available_congestion_control": "cubic"}}`, "fails"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if strings.Contains(c.plugins, "macvlan") {
				kerneltest.Needs(t, "macvlan")
			}
			s := newSiteOf(t, `{"cniVersion": "1.1.0", "name": "n", "plugins": [`+c.plugins+`]}`)
			s.sh("ip link add up0 type veth peer name up1\nip link set up0 up\nip link set up1 up\nip netns add one")
			if c.damage == "fails" {
				if code, out, errs := s.fairlead("add", "n", "one"); code == 0 {
					t.Errorf("the ADD succeeded\n%s%s", out, errs)
				}
			} else {
				s.ok("add", "n", "one")
				s.sh(c.damage)
			}
			s.ok("del", "n", "one")
			if links := kerneltest.Run(t, "ip", "-n", "one", "link"); strings.Contains(links, "eth0") {
				t.Errorf("the link is left:\n%s", links)
			}
			s.noRecords()
		})
	}
}
