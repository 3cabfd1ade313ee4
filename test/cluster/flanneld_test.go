package cluster

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/lab"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/test/flanneld"
)

// flannelPrefix is the prefix of flanneld's keys.
const flannelPrefix = "/coreos.com/network/"

// flannelVariable enables the tests with a real flanneld, which is built for them.
const flannelVariable = "FAIRLEAD_FLANNELD"

// realFlanneld returns the path of flanneld. It skips the test if these tests are not enabled.
func realFlanneld(t *testing.T) string {
	t.Helper()
	kerneltest.OptIn(t, flannelVariable)
	path, err := flanneld.Program()
	must(t, err)
	return path
}

// newFlannelCluster creates hosts without any process, and a store with flannel's configuration. Agents started on
// these hosts use flannel's keys.
func newFlannelCluster(t *testing.T, conf string, names ...string) (*lab.Cluster, []*lab.Node) {
	t.Helper()
	dir := t.TempDir()
	c, err := lab.NewCluster(t.Context(), lab.Options{Members: 1, Bin: bin, Dir: dir, Agent: []string{"--flannel-prefix", flannelPrefix, "--flannel-subnet-file", subnetFile}})
	must(t, err)
	t.Cleanup(func() {
		c.Close()
		checkLogs(t, dir)
	})
	must(t, c.Put(t.Context(), flannelPrefix+"config", conf))
	var nodes []*lab.Node
	for _, name := range names {
		n, err := c.Join(t.Context(), name)
		must(t, err)
		nodes = append(nodes, n)
	}
	flannelList(t, nodes...)
	return c, nodes
}

// startFlanneld starts flanneld on a host, with the host's usual flags.
func startFlanneld(t *testing.T, c *lab.Cluster, n *lab.Node, program string) *lab.Process {
	t.Helper()
	p, err := n.Host.Start(filepath.Join(c.Dir, n.Name+"-flanneld.log"), nil, program, "--etcd-endpoints", c.Endpoints(), "--etcd-prefix", strings.TrimSuffix(flannelPrefix, "/"),
		"--iface", "eth0", "--subnet-file", subnetFile, "--ip-masq")
	must(t, err)
	return p
}

// waitForPeers waits until a node's agent is ready and has the given number of peers.
func waitForPeers(t *testing.T, n *lab.Node, peers int) {
	t.Helper()
	kerneltest.Eventually(t, func() error {
		out, err := n.Fairlead(t.Context(), "agent", "status", "--json")
		if err == nil && !strings.Contains(out, fmt.Sprintf(`"peers": %d,`, peers)) {
			err = errors.New(out)
		}
		return err
	})
}

// flannelConfigs are the configurations with which a cluster is migrated host by host. Flannel's wireguard and ipip
// backends are missing, because they need kernel support for these link types.
var flannelConfigs = map[string]struct {
	conf    string
	tunnels string // the tunnel links of a host
	six     bool
}{
	"vxlan":          {`{"Network": "10.244.0.0/16", "EnableNFTables": true, "Backend": {"Type": "vxlan"}}`, "flannel.1", false},
	"vxlan-and-ipv6": {`{"Network": "10.244.0.0/16", "EnableIPv6": true, "IPv6Network": "fd00:244::/56", "EnableNFTables": true, "Backend": {"Type": "vxlan"}}`, "flannel-v6.1 flannel.1", true},
	"host-gw":        {`{"Network": "10.244.0.0/16", "EnableIPv6": true, "IPv6Network": "fd00:244::/56", "EnableNFTables": true, "Backend": {"Type": "host-gw"}}`, "", true},
}

// TestMixedWithFlanneld runs flanneld on two hosts and our agent on a third, in one cluster. It then migrates the
// flanneld hosts to our agent, and one of them back, while packets go to and from each host.
func TestMixedWithFlanneld(t *testing.T) {
	t.Parallel()
	program := realFlanneld(t)
	for name, f := range flannelConfigs { // one after the other: each keeps two processors busy
		t.Run(name, func(t *testing.T) {
			c, nodes := newFlannelCluster(t, f.conf, "a", "b", "x")
			m := &mixedCluster{t: t, a: nodes[0], b: nodes[1], x: nodes[2], nodes: nodes}
			fa, fb := startFlanneld(t, c, m.a, program), startFlanneld(t, c, m.b, program)
			waitForSubnet(t, m.a)
			before, _ := waitForSubnet(t, m.b)
			must(t, m.x.Start())
			waitForPeers(t, m.x, 2)
			m.attach(f.six)
			m.wantAllReach()
			m.wantNoLoss("b from flanneld to our agent", func() {
				_ = fb.Stop(5 * time.Second)
				must(t, m.b.Start())
				waitForPeers(t, m.b, 2)
			})
			m.checkMigrated(m.b, before, f.tunnels)
			m.wantNoLoss("a from flanneld to our agent", func() {
				fa.Kill()
				must(t, m.a.Start())
				waitForPeers(t, m.a, 2)
			})
			m.wantAllReach()
			m.wantNoLoss("a back to flanneld", func() {
				must(t, m.a.Agent.Stop(5*time.Second))
				fa = startFlanneld(t, c, m.a, program)
				kerneltest.Eventually(t, func() error {
					if !strings.Contains(fa.Log(), "Running backend") {
						return errors.New("flanneld does not run yet")
					}
					return nil
				})
			})
			m.wantAllReach()
			m.addHosts(c, program)
		})
	}
}

// mixedCluster is a cluster with flanneld on some hosts and our agent on others, and a container on each.
type mixedCluster struct {
	t       *testing.T
	a, b, x *lab.Node
	nodes   []*lab.Node
	ips     [][]netip.Addr // each container's IPv4 address, and its IPv6 address with two families
}

func (m *mixedCluster) attach(six bool) {
	m.t.Helper()
	for _, n := range m.nodes {
		waitForSubnet(m.t, n)
		ips := []netip.Addr{attach(m.t, n, "c1", "cbr0")}
		if six {
			ips = append(ips, address6(m.t, n, "c1"))
		}
		m.ips = append(m.ips, ips)
	}
}

// address6 returns a container's IPv6 address.
func address6(t *testing.T, n *lab.Node, container string) netip.Addr {
	t.Helper()
	out, err := n.IP(t.Context(), "-n "+container+" -6 -o addr show dev eth0 scope global")
	must(t, err)
	words := strings.Fields(out)
	if len(words) < 4 {
		t.Fatalf("container %s of host %s has no IPv6 address", container, n.Name)
	}
	p, err := netip.ParsePrefix(words[3])
	must(t, err)
	return p.Addr()
}

// wantAllReach checks that each container reaches the container of each other host.
func (m *mixedCluster) wantAllReach() {
	m.t.Helper()
	for i, n := range m.nodes {
		for j, ips := range m.ips {
			for _, ip := range ips {
				if i != j {
					wantReach(m.t, n, "c1", ip)
				}
			}
		}
	}
}

// wantNoLoss calls do while packets of each family go between the hosts, and for another second. None may be lost.
func (m *mixedCluster) wantNoLoss(what string, do func()) {
	m.t.Helper()
	var probes []*lab.Probe
	for _, pair := range [][2]int{{0, 1}, {1, 2}, {2, 0}} {
		for _, to := range m.ips[pair[1]] {
			p, err := m.nodes[pair[0]].Probe("c1", to)
			must(m.t, err)
			probes = append(probes, p)
			waitForAnswers(m.t, p)
		}
	}
	do()
	time.Sleep(time.Second)
	for i, p := range probes {
		l, err := p.Stop()
		must(m.t, err)
		m.t.Logf("%s: probe %d: %s", what, i, l)
		if l.Lost != 0 {
			m.t.Errorf("%s: probe %d: %s", what, i, l)
		}
	}
}

// checkMigrated checks that a migrated host still has flanneld's subnet and links, and can attach a second container.
func (m *mixedCluster) checkMigrated(n *lab.Node, want netip.Prefix, tunnels string) {
	m.t.Helper()
	if got, _ := waitForSubnet(m.t, n); got != want {
		m.t.Errorf("the subnet is %s, want %s", got, want)
	}
	out, err := n.Run(m.t.Context(), "sh", "-c", "ip -o link show type vxlan | sed 's/^[0-9]*: \\([^:@]*\\).*/\\1/' | sort | xargs")
	if got := strings.TrimSpace(out); err != nil || got != tunnels {
		m.t.Errorf("host %s has the tunnels %q, want flannel's %q: %v", n.Name, got, tunnels, err)
	}
	second := attach(m.t, n, "c2", "cbr0")
	wantReach(m.t, m.a, "c1", second)
	if len(m.ips[0]) > 1 {
		wantReach(m.t, m.a, "c1", address6(m.t, n, "c2"))
	}
	checkIPAM(m.t, n)
}

// addHosts adds one host with flanneld and one with our agent after the migrations. They reach each other and the rest.
func (m *mixedCluster) addHosts(c *lab.Cluster, program string) {
	m.t.Helper()
	for _, name := range []string{"f", "o"} {
		n, err := c.Join(m.t.Context(), name)
		must(m.t, err)
		flannelList(m.t, n)
		m.nodes = append(m.nodes, n)
	}
	startFlanneld(m.t, c, m.nodes[3], program)
	must(m.t, m.nodes[4].Start())
	six := len(m.ips[0]) > 1
	all := m.nodes
	m.nodes = all[3:]
	m.attach(six)
	m.nodes = all
	m.wantAllReach()
}

func checkIPAM(t *testing.T, n *lab.Node) {
	t.Helper()
	if out, err := n.Cluster(t.Context(), "ipam", "check"); err != nil {
		t.Errorf("ipam check: %v\n%s", err, out)
	}
}
