package docker_test

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/ovstest"
)

// TestOVSNetworks checks that a removed network leaves its VXLAN identifier to others, and takes its bridge with it.
func TestOVSNetworks(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	sw := ovstest.New(t)
	sw.Ctl("add-br", "manual", "--", "set", "bridge", "manual", "datapath_type=netdev")
	create := func(id, bridge, vlan string) {
		h.network(id, `"type":"ovs","bridge":"`+bridge+`","datapath":"netdev","socket":"`+sw.Socket()+`","vxlan":"42","vlan":"`+vlan+`"`, pool4)
	}
	endpoint := func(id, endpoint string) string {
		return `{` + ids(id, endpoint) + `,"Interface":{"Address":"10.20.0.5/24"}}`
	}
	attached := func(id string) { h.call("NetworkDriver.CreateEndpoint", endpoint(id, "e"+id)) }
	removed := func(id string) { h.call("NetworkDriver.DeleteNetwork", `{"NetworkID":"`+id+`"}`) }
	ports := func(bridge string) int { return len(strings.Fields(sw.Ctl("list-ports", bridge))) }

	create("n1", "ovs0", "5")
	create("n2", "ovs0", "6")
	create("n3", "ovs0", "5")
	attached("n1")
	attached("n3")
	h.fails("NetworkDriver.CreateEndpoint", endpoint("n2", "e2"), "has this tunnel with other settings")
	removed("n1")
	if n := ports("ovs0"); n != 2 {
		t.Errorf("%d ports, want the container's and the tunnel, which it uses", n)
	}
	h.fails("NetworkDriver.CreateEndpoint", endpoint("n2", "e2"), "has this tunnel with other settings")
	removed("n3")
	attached("n2") // the tunnel is still that of n1, which has no containers
	removed("n2")
	if got := sw.Ctl("list-br"); got != "manual\n" {
		t.Errorf("bridges: %s", got)
	}

	create("n4", "manual", "5")
	attached("n4")
	removed("n4")
	if n := ports("manual"); n != 0 {
		t.Errorf("%d ports left on the administrator's bridge", n)
	}
}
