package cluster

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/examples"
	"github.com/fairlead/fairlead/internal/lab"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

const (
	subnetFile = "/run/flannel/subnet.env"
	netConf    = `{ "Network": "10.244.0.0/16", "Backend": { "Type": "vxlan" } }`
)

// flannelList installs the example list for flannel on nodes.
func flannelList(t *testing.T, nodes ...*lab.Node) {
	t.Helper()
	raw, err := examples.Networks.ReadFile("50-flannel.conflist")
	must(t, err)
	for _, n := range nodes {
		must(t, os.WriteFile(n.Path(lab.ConfDir+"/50-flannel.conflist"), raw, 0o644))
	}
}

func netConfFile(t *testing.T, conf string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "net-conf.json")
	must(t, os.WriteFile(file, []byte(conf), 0o644))
	return file
}

// waitForSubnet waits for a host's subnet.env and returns its subnet and text.
func waitForSubnet(t *testing.T, n *lab.Node) (subnet netip.Prefix, text string) {
	t.Helper()
	kerneltest.Eventually(t, func() error {
		raw, err := os.ReadFile(n.Path(subnetFile))
		if err != nil {
			return err
		}
		text = string(raw)
		_, rest, _ := strings.Cut(text, "FLANNEL_SUBNET=")
		line, _, _ := strings.Cut(rest, "\n")
		subnet, err = netip.ParsePrefix(line)
		return err
	})
	return subnet, text
}

// TestFlannelExample starts three hosts with flannel's list and net-conf.json unchanged. Containers have addresses of
// their host's subnet and reach each other. Traffic that leaves the cluster is masqueraded once.
func TestFlannelExample(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 1, "", "--network-file", netConfFile(t, netConf), "--flannel-subnet-file", subnetFile)
	flannelList(t, c.Nodes...)
	var ips []netip.Addr
	for _, n := range c.Nodes {
		subnet, text := waitForSubnet(t, n)
		want := fmt.Sprintf("FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=%s\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n", subnet)
		if text != want || subnet.Bits() != 24 || subnet.Addr() != subnet.Masked().Addr().Next() || subnet.Contains(netip.MustParseAddr("10.244.0.1")) {
			t.Errorf("host %s has\n%s\nwant\n%s", n.Name, text, want)
		}
		ip := attach(t, n, "c1", "cbr0")
		if !subnet.Contains(ip) {
			t.Errorf("host %s allocated %s, which is not in %s", n.Name, ip, subnet)
		}
		ips = append(ips, ip)
	}
	a := c.Nodes[0]
	for _, n := range c.Nodes {
		for _, ip := range ips {
			wantReach(t, n, "c1", ip)
		}
		wantReach(t, n, "c1", c.Stores[0].V4) // the store has no route back to containers
	}
	if out, err := a.Run(t.Context(), "nft", "list", "ruleset"); err != nil || strings.Count(out, "masquerade") != 1 {
		t.Errorf("want exactly one masquerade rule: %v\n%s", err, out)
	}
	checkAddresses(t, a)
	// A container of another list on the same host gets its address from another block, which is allocated only now.
	if other := attach(t, a, "c2", "pods"); netip.PrefixFrom(ips[0], 24).Masked().Contains(other) {
		t.Errorf("fairlead-ipam allocated %s, from the block of host-local", other)
	}
	wantReach(t, c.Nodes[1], "c1", ips[0])
	checkAddresses(t, a)
	// A restart changes neither the subnet nor the file.
	before, err := os.Stat(a.Path(subnetFile))
	must(t, err)
	wantNoLoss(t, a, "c1", ips[1], func() { a.Agent.Kill(); must(t, a.Start()); must(t, c.Ready(t.Context())) })
	if after, err := os.Stat(a.Path(subnetFile)); err != nil || !after.ModTime().Equal(before.ModTime()) {
		t.Errorf("the file was written again: %v", err)
	}
	_, err = a.Fairlead(t.Context(), "del", "cbr0", "c1")
	must(t, err)
}

// checkAddresses checks the addresses with the agent's commands.
func checkAddresses(t *testing.T, n *lab.Node) {
	t.Helper()
	if out, err := n.Cluster(t.Context(), "ipam", "check"); err != nil {
		t.Errorf("ipam check: %v\n%s", err, out)
	}
	if out, err := n.Cluster(t.Context(), "ipam", "show"); err != nil || !strings.Contains(out, "1 of 253") || !strings.Contains(out, "flannel") {
		t.Errorf("ipam show: %v\n%s", err, out)
	}
}

// TestFlannelDualStack checks that subnet.env has both families and that the plugin assigns addresses of both.
func TestFlannelDualStack(t *testing.T) {
	t.Parallel()
	conf := `{"Network": "10.244.0.0/16", "EnableIPv6": true, "IPv6Network": "fd00:244::/56", "Backend": {"Type": "host-gw"}}`
	c := newCluster(t, 2, 1, "", "--network-file", netConfFile(t, conf), "--flannel-subnet-file", subnetFile)
	flannelList(t, c.Nodes...)
	for _, n := range c.Nodes {
		kerneltest.Eventually(t, func() error {
			_, text := waitForSubnet(t, n)
			if !strings.Contains(text, "FLANNEL_IPV6_NETWORK=fd00:244::/56\nFLANNEL_IPV6_SUBNET=fd00:244:0:") || !strings.Contains(text, "::1/64\nFLANNEL_MTU=1500\n") {
				return fmt.Errorf("host %s has\n%s", n.Name, text)
			}
			return nil
		})
		attach(t, n, "c1", "cbr0")
	}
	a, b := c.Nodes[0], c.Nodes[1]
	out, err := b.Run(t.Context(), "ip", "-n", "c1", "-6", "-o", "addr", "show", "dev", "eth0", "scope", "global")
	must(t, err)
	to := netip.MustParsePrefix(strings.Fields(out)[3]).Addr()
	wantReach(t, a, "c1", to)
}
