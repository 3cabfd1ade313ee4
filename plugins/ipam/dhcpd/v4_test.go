package dhcpd

import (
	"net"
	"strings"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"

	addr "github.com/fairlead/fairlead/plugins/ipam"
)

// TestRouterOfRenewal checks that a renewal with another router, or with none, does not change what ADD reported.
func TestRouterOfRenewal(t *testing.T) {
	t.Parallel()
	var logged []string
	p := &v4{client: client{id: "one/net/eth0", conf: &addr.DHCPConf{}, o: &Options{Log: func(line string) { logged = append(logged, line) }}}}
	renew := func(router net.IP) {
		m, err := dhcpv4.New(dhcpv4.WithYourIP(net.IPv4(10, 0, 0, 50)), dhcpv4.WithNetmask(net.CIDRMask(24, 32)))
		if err != nil {
			t.Fatal(err)
		}
		if router != nil {
			m.UpdateOption(dhcpv4.OptRouter(router))
		}
		p.acknowledged(m, nil, newTerm(uptime(), 0, 0, 60, 0.875))
		held := p.held()
		if len(held.IPs) != 1 || held.IPs[0].Gateway.String() != "10.0.0.1" || routesText(held.Routes) != "0.0.0.0/0 via 10.0.0.1" {
			t.Errorf("router %v: %+v", router, held)
		}
	}
	renew(net.IPv4(10, 0, 0, 1))
	renew(net.IPv4(10, 0, 0, 1))
	if len(logged) > 0 {
		t.Errorf("logged %q", logged)
	}
	renew(net.IPv4(10, 0, 0, 254))
	renew(net.IPv4(10, 0, 0, 254))
	renew(nil)
	const of = "the server changed the router or the routes: "
	if len(logged) != 2 || !strings.Contains(logged[0], of+"0.0.0.0/0 via 10.0.0.254; ") || !strings.Contains(logged[1], of+"none; the container keeps those of its ADD: 0.0.0.0/0 via 10.0.0.1") {
		t.Errorf("logged %q", logged)
	}
}
