package kernel_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestRoutesToOneDestination compares two IPv6 routes to one destination through one link. The kernel merges them into one
// multipath route, and each stays a route of its own for us.
func TestRoutesToOneDestination(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	kerneltest.Run(t, "ip", "link", "add", "br0", "type", "bridge")
	kerneltest.Run(t, "ip", "link", "set", "br0", "up")
	kerneltest.Run(t, "ip", "addr", "add", "2001:db8::1/64", "dev", "br0", "nodad")
	e := open(t, kerneltest.Netns(t), kernel.Options{})
	var list kernel.Objects
	for _, via := range []string{"2001:db8::2", "2001:db8::3"} {
		list = append(list, &kernel.Route{In: kernel.Host, Link: "br0", Dst: netip.MustParsePrefix("::/0"), Via: addr(via), AllowOthers: true})
	}
	if err := e.Apply(list); err != nil {
		t.Fatal(err)
	}
	if d, err := e.Compare(list); err != nil || len(d) > 0 {
		t.Errorf("%v\n%s", err, words(d))
	}
	absent := &kernel.AbsentRoute{Route: *list[0].(*kernel.Route)}
	absent.Route.Metric = 1024
	if d, err := e.Compare(kernel.Objects{absent}); err != nil || len(d) != 1 {
		t.Errorf("a hop that must not exist: %v\n%s", err, words(d))
	}
	kerneltest.Run(t, "ip", "-6", "route", "del", "default", "via", "2001:db8::2", "dev", "br0")
	if d, err := e.Compare(list); err != nil || len(d) != 1 || d[0].Object != list[0] {
		t.Errorf("without the first: %v\n%s", err, words(d))
	}
	if done, err := e.Repair(list); err != nil || len(done) != 1 || done[0].Err != nil {
		t.Errorf("repair: %v %v", done, err)
	}
	if d, err := e.Compare(list); err != nil || len(d) > 0 {
		t.Errorf("after the repair: %v\n%s", err, words(d))
	}
}

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
