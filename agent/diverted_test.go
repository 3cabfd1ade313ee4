package agent

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/desired"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestDivertedRoutes checks that the reconciler reports a node as unreachable if the kernel uses another program's route, also
// in a later run without a list, until a list finds the agent's route again.
func TestDivertedRoutes(t *testing.T) {
	t.Parallel()
	ownHost(t)
	kerneltest.Run(t, "ip", "link", "add", "eth0", "up", "type", "veth", "peer", "name", "eth0p")
	kerneltest.Run(t, "ip", "link", "set", "eth0p", "up")
	kerneltest.Run(t, "ip", "addr", "add", "192.0.2.1/24", "dev", "eth0")
	k, err := newKernelReconciler(&config.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer k.close()
	block := netip.MustParsePrefix("10.244.1.0/24")
	w := &desired.State{
		Objects: kernel.Objects{&kernel.Route{Dst: block, Via: netip.MustParseAddr("192.0.2.2"), Link: "eth0"}},
		Blocks:  map[string]*cluster.Block{"b": {CIDR: block, Node: "b"}},
	}
	look := func(list bool, want string) {
		t.Helper()
		if list {
			k.invalidate()
		}
		rep := k.reconcile(w, true)
		got := ""
		for _, p := range divertedRoutes(w, rep) {
			got += fmt.Sprint(p.Node, ": ", p.Err)
		}
		if rep.Err() != nil || (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%v, %s, want %s", rep.Err(), got, want)
		}
	}
	look(false, "")
	kerneltest.Run(t, "ip", "route", "prepend", block.String(), "via", "192.0.2.9")
	const want = "b: this host does not use the agent's route to 10.244.1.0/24, but: route 10.244.1.0/24 via 192.0.2.9 dev eth0"
	look(true, want)
	look(false, want)
	kerneltest.Run(t, "ip", "route", "del", block.String(), "via", "192.0.2.9")
	look(true, "")
}
