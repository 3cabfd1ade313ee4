package link

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/plugin/plugintest"
)

// TestDefaultRouteOfOtherTable checks that isDefaultGateway adds a default route although IPAM has one for another table.
func TestDefaultRouteOfOtherTable(t *testing.T) {
	t.Parallel()
	gateway := netip.MustParseAddr("10.1.0.1")
	for _, c := range []struct {
		table int
		gw    netip.Addr
		added bool
	}{{100, netip.Addr{}, true}, {100, gateway, false}, {254, netip.Addr{}, false}, {0, netip.Addr{}, false}} {
		r := plugintest.Result(netip.MustParsePrefix("10.1.0.2/24"))
		r.Routes = []cni.Route{{Dst: netip.MustParsePrefix("0.0.0.0/0"), GW: c.gw, Table: &c.table}}
		list, err := plugintest.Try(Bridge(), []byte(`{"cniVersion": "1.1.0", "name": "n", "type": "bridge", "isDefaultGateway": true}`), r)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(fmt.Sprint(list), "route add default via 10.1.0.1 dev eth0"); n != 1 && !c.added || n != 2 && c.added {
			t.Errorf("%+v: %d default routes: %v", c, n, list)
		}
	}
}
