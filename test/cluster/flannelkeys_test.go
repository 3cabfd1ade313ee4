package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/lab"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// simulateFlanneld configures a host as flanneld v0.28.9 does: its link, its file, and its key in etcd, with its own
// subnet.
func simulateFlanneld(t *testing.T, c *lab.Cluster, n *lab.Node, subnet netip.Prefix) {
	t.Helper()
	gateway := subnet.Addr().Next()
	for _, line := range []string{
		fmt.Sprintf("link add flannel.1 address de:44:8e:3b:1f:da type vxlan id 1 local %s dev eth0 dstport 8472 nolearning", n.V4),
		"link set flannel.1 mtu 1450 up", fmt.Sprintf("addr add %s/32 dev flannel.1", subnet.Addr()),
	} {
		_, err := n.IP(t.Context(), line)
		must(t, err)
	}
	must(t, os.MkdirAll(n.Path("/run/flannel"), 0o755))
	must(t, os.WriteFile(n.Path(subnetFile), fmt.Appendf(nil, "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=%s/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n", gateway), 0o644))
	must(t, c.Put(t.Context(), flannelKey(subnet),
		fmt.Sprintf(`{"PublicIP":"%s","PublicIPv6":null,"BackendType":"vxlan","BackendData":{"VNI":1,"VtepMAC":"de:44:8e:3b:1f:da"}}`, n.V4)))
}

func flannelKey(subnet netip.Prefix) string {
	return flannelPrefix + "subnets/" + strings.ReplaceAll(subnet.String(), "/", "-")
}

type leaseValue struct {
	PublicIP    netip.Addr
	BackendType string
	BackendData struct{ VtepMAC string }
}

// addPeer adds what flanneld adds for another node's key: a neighbour, a forwarding entry and a route, without a
// protocol number.
func addPeer(t *testing.T, c *lab.Cluster, n *lab.Node, subnet netip.Prefix) leaseValue {
	t.Helper()
	var v leaseValue
	kerneltest.Eventually(t, func() error {
		keys, err := c.Keys(t.Context(), flannelKey(subnet))
		if err == nil && len(keys) == 0 {
			err = errors.New("no key of " + subnet.String())
		}
		if err != nil {
			return err
		}
		return json.Unmarshal([]byte(keys[flannelKey(subnet)]), &v)
	})
	for _, argv := range [][]string{
		{"ip", "neigh", "replace", subnet.Addr().String(), "lladdr", v.BackendData.VtepMAC, "dev", "flannel.1", "nud", "permanent"},
		{"bridge", "fdb", "replace", v.BackendData.VtepMAC, "dev", "flannel.1", "dst", v.PublicIP.String(), "self", "permanent"},
		{"ip", "route", "replace", subnet.String(), "via", subnet.Addr().String(), "dev", "flannel.1", "onlink"},
	} {
		_, err := n.Run(t.Context(), argv...)
		must(t, err)
	}
	return v
}

// TestFlannelKeys checks that a flannel node and a Fairlead node reach each other by flannel's keys. Then the flannel
// node's own agent replaces flanneld, and no packet is lost.
func TestFlannelKeys(t *testing.T) {
	t.Parallel()
	c, nodes := newFlannelCluster(t, netConf, "f", "x")
	f, x := nodes[0], nodes[1]
	want := netip.MustParsePrefix("10.244.57.0/24")
	simulateFlanneld(t, c, f, want)
	must(t, x.Start())
	waitForPeers(t, x, 1)
	subnet, _ := waitForSubnet(t, x)
	lease := addPeer(t, c, f, subnet.Masked())
	if lease.BackendType != "vxlan" || lease.PublicIP != x.V4 {
		t.Errorf("the key for flannel's nodes has %+v", lease)
	}
	to := attach(t, x, "c1", "cbr0")
	from := attach(t, f, "c1", "cbr0")
	if !want.Contains(from) {
		t.Errorf("%s is not in %s", from, want)
	}
	wantReach(t, f, "c1", to)
	wantReach(t, x, "c1", from)
	if out, err := x.Cluster(t.Context(), "node", "list", "--flannel-prefix", flannelPrefix); err != nil || !strings.Contains(out, "flannel "+f.V4.String()) {
		t.Errorf("node list: %v\n%s", err, out)
	}
	before, err := os.ReadFile(f.Path(subnetFile))
	must(t, err)
	wantNoLoss(t, x, "c1", from, func() {
		must(t, f.Start())
		waitForPeers(t, f, 1)
	})
	wantReach(t, f, "c1", to)
	if after, err := os.ReadFile(f.Path(subnetFile)); err != nil || string(after) != string(before) {
		t.Errorf("subnet.env was\n%s\nand is\n%s", before, after)
	}
	out, err := f.IP(t.Context(), "route show dev flannel.1")
	if must(t, err); strings.Count(out, "proto 103") != 1 || strings.Count(out, "\n") != 1 {
		t.Errorf("flanneld's route was not taken over:\n%s", out)
	}
	out, err = f.IP(t.Context(), "-o link show flannel.1")
	if must(t, err); !strings.Contains(out, "de:44:8e:3b:1f:da") || !strings.Contains(out, "alias fairlead-agent") {
		t.Errorf("the link was not taken over from flannel:\n%s", out)
	}
	keys, err := c.Keys(t.Context(), flannelKey(want))
	if must(t, err); !strings.Contains(keys[flannelKey(want)], `"Fairlead":"f"`) {
		t.Errorf("the key is %v", keys)
	}
	waitForPeers(t, x, 1)
	checkIPAM(t, f)
}
