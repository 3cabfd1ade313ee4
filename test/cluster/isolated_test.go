package cluster

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/lab"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// isolatedNets creates networks in the cluster, and a configuration of each on every node.
func isolatedNets(t *testing.T, c *lab.Cluster, create ...string) {
	t.Helper()
	for _, line := range create {
		words := append([]string{"network", "create"}, strings.Fields(line)...)
		_, err := c.Nodes[0].Cluster(t.Context(), words...)
		must(t, err)
		name := words[2]
		for _, n := range c.Nodes {
			must(t, n.Configure(name, fmt.Sprintf(`{"type": "fairlead-net", "network": %q}, {"type": "tuning", "sysctl": {"net.core.somaxconn": "500"}}`, name)))
		}
	}
}

// wantNoReach fails the test if a container reaches an address.
func wantNoReach(t *testing.T, n *lab.Node, container string, to netip.Addr) {
	t.Helper()
	if err := n.Ping(t.Context(), container, to); err == nil {
		t.Errorf("container %s of host %s reaches %s", container, n.Name, to)
	}
}

// wantSpoofedDropped attaches a container with antiSpoof to network red. Its echo requests to a container on the other
// host arrive with its own source address, and are dropped with another one.
func wantSpoofedDropped(t *testing.T, a, b *lab.Node, to netip.Addr) {
	t.Helper()
	must(t, a.Configure("pinned", `{"type": "fairlead-net", "network": "red", "antiSpoof": true}`))
	attach(t, a, "evil", "pinned")
	echoes := func() (n int) {
		out, err := b.Run(t.Context(), "ip", "netns", "exec", "red2", "awk", `/^IcmpMsg:/ {for (i = 2; i <= NF; i++) if ($i == "InType8") c = i; else if (c) v = $c} END {print v + 0}`, "/proc/net/snmp")
		must(t, err)
		_, err = fmt.Sscan(out, &n)
		must(t, err)
		return n
	}
	before := echoes()
	wantReach(t, a, "evil", to)
	own := echoes()
	_, _ = a.Run(t.Context(), "ip", "netns", "exec", "evil", "sh", "-c", "ip addr add 10.0.0.77/32 dev eth0 && ping -c1 -W1 -I 10.0.0.77 "+to.String())
	if own == before || echoes() != own {
		t.Errorf("%d echoes before, %d after one with the container's address, %d after one with another address", before, own, echoes())
	}
	_, err := a.Fairlead(t.Context(), "del", "pinned", "evil")
	must(t, err)
}

// TestIsolatedNetworks creates networks with the same addresses. Each reaches only its own containers on other hosts,
// peer networks reach each other, and a container may be in several networks.
func TestIsolatedNetworks(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, 1, vxlanNet)
	a, b := c.Nodes[0], c.Nodes[1]
	isolatedNets(t, c, "blue --isolated --subnet 10.0.0.0/24 --nat", "red --isolated --subnet 10.0.0.0/24",
		"green --isolated --subnet 10.1.0.0/24 --subnet fd00:1::/64 --peer blue")
	// Somebody else's namespace with a name like the agent's. The agent may remove the file before something is mounted there.
	_, err := a.Run(t.Context(), "sh", "-c", "ip netns add other && ip -n other link add x0 type veth peer name x1 && ip -n other link set x0 up && "+
		"for try in 1 2 3 4 5 6 7 8; do touch /run/netns/fairlead-other && mount --bind /run/netns/other /run/netns/fairlead-other && exit; done; exit 1")
	must(t, err)
	pods := attach(t, a, "p1", "pods")
	blueA, blueB := attach(t, a, "blue1", "blue"), attach(t, b, "blue2", "blue")
	redA, redB := attach(t, a, "red1", "red"), attach(t, b, "red2", "red")
	greenB := attach(t, b, "green1", "green")
	wantReach(t, a, "blue1", blueB)
	wantReach(t, b, "blue2", blueA)
	wantReach(t, a, "red1", redB)
	wantReach(t, b, "red2", redA)
	wantNoReach(t, a, "blue1", pods)
	wantNoReach(t, a, "p1", blueA)
	wantNoReach(t, a, "red1", greenB)
	wantNoReach(t, b, "green1", blueA) // blue does not list green as its peer yet
	if _, err := a.Run(t.Context(), "sh", "-c", "ip netns exec red1 ping -c1 -W1 "+a.V4.String()); err == nil {
		t.Error("a network without NAT reaches the host")
	}
	wantReach(t, a, "blue1", b.V4) // masqueraded to the host's address
	wantSpoofedDropped(t, a, b, redB)

	out, err := a.Cluster(t.Context(), "network", "show", "blue", "--json")
	must(t, err)
	peer := strings.Replace(out, `"subnets"`, `"peers": ["green"], "subnets"`, 1)
	_, err = a.Run(t.Context(), "sh", "-c", fmt.Sprintf("cat > /run/blue.json <<'E'\n%s\nE", peer))
	must(t, err)
	_, err = a.Cluster(t.Context(), "network", "set", "blue", "/run/blue.json")
	must(t, err)
	wantReach(t, b, "green1", blueA)
	wantReach(t, a, "blue1", greenB)
	wantNoReach(t, b, "green1", redA.Next().Next())

	// One container in the default network and an isolated one.
	must(t, a.Container(t.Context(), "many"))
	for i, network := range []string{"pods", "green"} {
		_, err := a.Add(t.Context(), "many", network, fmt.Sprint("eth", i))
		must(t, err)
	}
	wantReach(t, a, "many", pods)
	wantReach(t, a, "many", greenB)

	// DEL removes everything on the host and in the network's namespace.
	for _, x := range []struct{ name, network string }{{"blue1", "blue"}, {"red1", "red"}} {
		_, err := a.Fairlead(t.Context(), "check", x.network, x.name)
		must(t, err)
		_, err = a.Fairlead(t.Context(), "del", x.network, x.name)
		must(t, err)
	}
	if out, err := a.Run(t.Context(), "ip", "-n", "fairlead-red", "-o", "link", "show", "type", "veth"); err != nil || out != "" {
		t.Errorf("links are left in the network's namespace (%v): %s", err, out)
	}
	if out, err := a.Run(t.Context(), "ip", "-n", "fairlead-other", "-o", "link", "show", "x0"); err != nil {
		t.Errorf("a third-party namespace with a similar name was changed: %v: %s", err, out)
	}
	doctor, err := a.Fairlead(t.Context(), "doctor")
	if err != nil {
		t.Errorf("fairlead doctor: %v\n%s", err, doctor)
	}
}

// TestIsolatedSingleAddresses attaches containers to isolated networks whose nodes have single addresses only, no blocks:
// alone, and with a peer that has none on the other host.
func TestIsolatedSingleAddresses(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, 1, vxlanNet)
	a, b := c.Nodes[0], c.Nodes[1]
	for _, net := range [][3]string{{"white", "10.7.0.0/24", "black"}, {"black", "10.8.0.0/24", "white"}} {
		spec := fmt.Sprintf(`{"isolated": true, "subnets": [{"cidr": %q, "assign": "cluster"}], "peers": [%q]}`, net[1], net[2])
		_, err := a.Run(t.Context(), "sh", "-c", fmt.Sprintf("cat > /run/%s.json <<'E'\n%s\nE", net[0], spec))
		must(t, err)
		_, err = a.Cluster(t.Context(), "network", "apply", "-f", "/run/"+net[0]+".json", net[0])
		must(t, err)
		for _, n := range c.Nodes {
			must(t, n.Configure(net[0], fmt.Sprintf(`{"type": "fairlead-net", "network": %q}`, net[0])))
		}
	}
	first, second := attach(t, a, "w1", "white"), attach(t, b, "w2", "white")
	wantReach(t, a, "w1", second)
	wantReach(t, b, "w2", first)
	other := attach(t, b, "b1", "black")
	wantReach(t, a, "w1", other)
	wantReach(t, b, "b1", first)
	for _, n := range c.Nodes {
		for _, x := range [][2]string{{"white", "w1"}, {"white", "w2"}, {"black", "b1"}} {
			if n == a == (x[1] == "w1") {
				_, err := n.Fairlead(t.Context(), "del", x[0], x[1])
				must(t, err)
			}
		}
	}
	kerneltest.Eventually(t, func() error { // nothing needs the namespaces any more
		out, err := a.Run(t.Context(), "ip", "netns", "list")
		if err == nil && strings.Contains(out, "fairlead-") {
			err = fmt.Errorf("namespaces are left: %s", out)
		}
		return err
	})
}
