package demo

import (
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/netconf"
)

func TestSnapshot(t *testing.T) {
	t.Parallel()
	a := lines("q", []byte("table inet x {\n\tchain c {\n\t\tcounter packets 5 bytes 7\n\t}\n}\n1: eth0 inet 10.0.0.1/8 valid_lft 77sec preferred_lft 7sec\n"))
	b := lines("q", []byte("table inet x {\n\tchain c {\n\t\tcounter packets 6 bytes 9\n\t}\n}\n1: eth0 inet 10.0.0.1/8 valid_lft 70sec preferred_lft 1sec\n2: eth1\n"))
	if gone, come := a.minus(b), b.minus(a); len(gone) != 0 || len(come) != 1 || !strings.Contains(come[0], "2: eth1") {
		t.Errorf("gone %q, come %q", gone, come)
	}
	if got := (snapshot{"x", "x"}).minus(snapshot{"x"}); !slices.Equal(got, snapshot{"x"}) {
		t.Errorf("a line that occurs twice: %q", got)
	}
}

// TestShared verifies which lines the demo attributes to one attachment, and which to several.
func TestShared(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]bool{
		"host: ip -o link: | 5: cni0: <BROADCAST>":                                                  true,
		"host: ip -o link: | 6: veth1234@if2: <BROADCAST> master cni0x":                             false,
		"web: ip -o link: | 2: eth0 cni0":                                                           false,
		"file: /var/lib/cni/networks/my-network/last_reserved_ip.0":                                 true,
		"file: /var/lib/cni/networks/my-network/10.244.0.2":                                         false,
		"file: /run/fairlead/attach/n/x.json":                                                       false,
		`host: nft list ruleset: table inet fairlead | fib daddr type local comment "fairlead #12"`: true,
		`host: nft list ruleset: table inet fairlead | 10.0.0.1 comment "fairlead n c eth0"`:        false,
		`host: nft list ruleset: table inet fairlead | elements = { 10.0.0.1 }`:                     false,
		"host: nft list ruleset: table inet other | chain c {":                                      false,
		"host: sysctl net.ipv4.ip_forward: | net.ipv4.ip_forward = 1":                               true,
	} {
		if got := shared(line); got != want {
			t.Errorf("%s: got %v", line, got)
		}
	}
}

// TestNetworks verifies that the examples have all networks of the demo.
func TestNetworks(t *testing.T) {
	t.Parallel()
	names := netconf.Names("../../examples")
	for _, c := range containers() {
		if !slices.Contains(names, c.network) {
			t.Errorf("no example has the network %s", c.network)
		}
	}
}
