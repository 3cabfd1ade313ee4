package reconcile_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestDiverted checks that routes and rules of other programs are reported if packets to a peer take them instead of the
// owner's route.
func TestDiverted(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	existingVXLAN(t)
	_, r := reconciler(t)
	want := append(vx(), peers(3)...)
	for _, p := range []string{"2001:db8:1::/64", "2001:db8:2::/64"} {
		want = append(want, &kernel.Route{Dst: netip.MustParsePrefix(p), Via: netip.MustParseAddr("2001:db8::9"), Link: "eth0"})
	}
	if err := r.Reconcile(want).Err(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ command, want string }{
		{"", ""},
		{"ip route prepend 10.128.0.0/24 via 192.0.2.9", "10.128.0.0/24: route 10.128.0.0/24 via 192.0.2.9 dev eth0 table 254 proto 3\n"},
		{"ip route add 10.128.1.0/25 dev eth0", "10.128.1.0/24: route 10.128.1.0/25 dev eth0 table 254 proto 3\n"},
		{"ip -6 route add 2001:db8:1::/64 via 2001:db8::7 metric 1", "2001:db8:1::/64: route 2001:db8:1::/64 via 2001:db8::7 dev eth0 table 254 proto 3\n"},
		{"ip rule add to 10.128.2.0/24 lookup 77 prio 5\nip route add 10.0.0.0/8 dev eth0 table 77", "10.128.2.0/24: route 10.0.0.0/8 dev eth0 table 77 proto 3\n"},
		{"ip addr add 10.128.0.0/32 dev lo", "10.128.0.0/24: route 10.128.0.0/32 dev lo table 255 proto 2\n"},
		{"ip rule flush", "10.128.0.0/24: network is unreachable\n10.128.1.0/24: network is unreachable\n10.128.2.0/24: network is unreachable\n"},
	} {
		undo := strings.NewReplacer(" prepend ", " del ", " add ", " del ", "ip rule flush", "ip rule add lookup main prio 32766")
		run := func(commands string) {
			for line := range strings.Lines(commands) {
				kerneltest.Run(t, strings.Fields(line)...)
			}
		}
		run(c.command)
		list, err := r.Diverted()
		got := ""
		for _, d := range list {
			got += d.Dst.String() + ": " + d.By + "\n"
		}
		if got != c.want || err != nil {
			t.Errorf("%s: %v\n%swant\n%s", c.command, err, got, c.want)
		}
		run(undo.Replace(c.command))
	}
}
