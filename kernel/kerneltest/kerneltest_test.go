package kerneltest

import (
	"strings"
	"testing"
)

func TestDumpHasEveryKindOfObject(t *testing.T) {
	t.Parallel()
	Host(t)
	for _, c := range []string{
		"ip link add br0 type bridge", "ip link add port0 type veth peer name port1", "ip link set port0 master br0", "ip link set br0 up",
		"ip addr add 192.0.2.1/24 dev br0", "ip route add blackhole 198.51.100.0/24", "ip rule add from 192.0.2.7 table 5",
		"ip neigh add 192.0.2.9 lladdr 02:00:00:00:00:09 dev br0 nud permanent", "tc qdisc add dev br0 ingress", "nft add table inet mine",
	} {
		Run(t, strings.Fields(c)...)
	}
	wants := []string{"port0", "192.0.2.1/24", "blackhole 198.51.100.0/24", "from 192.0.2.7 lookup 5", "02:00:00:00:00:09 PERMANENT", "qdisc ingress", "table inet mine"}
	if Has(t, "bridge VLAN filtering") {
		wants = append(wants, "1 PVID Egress Untagged")
	}
	text := Dump(t, "")
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
}
