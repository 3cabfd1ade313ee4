package kernel_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestRouteAmongCopies compares a route of which the kernel has two copies that differ in their attributes. IPv4 allows
// that. One copy with the wanted attributes is enough; without one, the difference is named.
func TestRouteAmongCopies(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	kerneltest.Run(t, "ip", "link", "add", "br0", "type", "bridge")
	kerneltest.Run(t, "ip", "link", "set", "br0", "up")
	kerneltest.Run(t, "ip", "route", "add", "10.9.0.0/24", "dev", "br0", "mtu", "1300")
	kerneltest.Run(t, "ip", "route", "append", "10.9.0.0/24", "dev", "br0", "mtu", "1400")
	e := open(t, kerneltest.Netns(t), kernel.Options{})
	for mtu, want := range map[int]string{1300: "", 1400: "", 1450: "mtu"} {
		r := &kernel.Route{In: kernel.Host, Link: "br0", Dst: netip.MustParsePrefix("10.9.0.0/24"), MTU: mtu}
		diffs, err := e.Compare(kernel.Objects{r})
		if err != nil {
			t.Fatal(err)
		}
		text := ""
		for _, d := range diffs {
			text += d.String()
		}
		if (text == "") != (want == "") || !strings.Contains(text, want) {
			t.Errorf("mtu %d: %q, want %q in it", mtu, text, want)
		}
	}
}
