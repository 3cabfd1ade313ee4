package agent

import (
	"net/netip"
	"strings"
	"testing"
)

func TestChooseAddresses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ have, asked, prefer, want, problem string }{
		{have: "192.0.2.1/24 192.0.2.9/24 fe80::1/64 fd00::1/64 2001:db8::1/64", want: "192.0.2.1/24 fd00::1/64"},
		{have: "192.0.2.1/24 192.0.2.9/24", asked: "192.0.2.9", want: "192.0.2.9/24"},
		{have: "192.0.2.9/24 192.0.2.1/24", asked: "192.0.2.9", want: "192.0.2.9/24"},
		{have: "192.0.2.1/24 fd00::1/64", asked: "fd00::1", want: "fd00::1/64"},
		{have: "192.0.2.1/24 fd00::1/64 fd00::2/64", asked: "192.0.2.1 fd00::2", want: "192.0.2.1/24 fd00::2/64"},
		{have: "192.0.2.1/24 fd00::1/64", asked: "192.0.2.1 fd00::2", problem: "lacks the configured address fd00::2"},
		{have: "fd00::1/64", asked: "192.0.2.1", problem: "lacks the configured address 192.0.2.1"},
		{have: "192.0.2.1/24 192.0.2.9/24 fd00::1/64 fd00::2/64", prefer: "192.0.2.9 fd00::2", want: "192.0.2.9/24 fd00::2/64"},
		{have: "192.0.2.9/24 192.0.2.1/24 fd00::1/64", prefer: "192.0.2.9 198.51.100.7", want: "192.0.2.9/24 fd00::1/64"},
		{have: "fe80::1/64", problem: "no address that other nodes could reach"},
		{problem: "no address that other nodes could reach"},
	} {
		var have []netip.Prefix
		var asked, prefer []netip.Addr
		for f := range strings.FieldsSeq(c.have) {
			have = append(have, netip.MustParsePrefix(f))
		}
		for f := range strings.FieldsSeq(c.asked) {
			asked = append(asked, netip.MustParseAddr(f))
		}
		for f := range strings.FieldsSeq(c.prefer) {
			prefer = append(prefer, netip.MustParseAddr(f))
		}
		out, err := chooseAddresses(have, asked, prefer)
		var got []string
		for _, p := range out {
			got = append(got, p.String())
		}
		if strings.Join(got, " ") != c.want || (err != nil) != (c.problem != "") || err != nil && !strings.Contains(err.Error(), c.problem) {
			t.Errorf("of %q with %q: %q, %v; want %q, %q", c.have, c.asked, got, err, c.want, c.problem)
		}
	}
}
