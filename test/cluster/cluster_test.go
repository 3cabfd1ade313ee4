// Package cluster tests several hosts with agents: real processes, a real etcd, and containers attached by the real
// plugins, in network namespaces.
package cluster

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/lab"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// bin is the directory of this tree's programs.
var bin = os.Getenv("FAIRLEAD_TEST_PROGRAMS")

func TestMain(m *testing.M) {
	if bin != "" {
		os.Exit(m.Run())
	}
	code := 1
	if dir, err := build(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		bin = dir
		code = m.Run()
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

func build() (string, error) {
	dir, err := os.MkdirTemp("", "fairlead-cluster-")
	if err != nil {
		return "", err
	}
	cmd := exec.Command("go", append(buildArgs(), "-o", dir, "./cmd/fairlead", "./cmd/fairlead-cni")...)
	cmd.Dir = "../.."
	if !raceEnabled {
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		os.RemoveAll(dir)
		return "", fmt.Errorf("build the programs: %w\n%s", err, out)
	}
	return dir, nil
}

// buildArgs adds -race to the programs' build if the tests run with it.
func buildArgs() []string {
	if raceEnabled {
		return []string{"build", "-race"}
	}
	return []string{"build"}
}

const vxlanNet = `{"subnets": [{"cidr": "10.244.0.0/16"}], "nat": true}`

// newCluster creates a cluster with the given number of nodes, called a, b, c.
func newCluster(t *testing.T, nodes, members int, network string, flags ...string) *lab.Cluster {
	t.Helper()
	dir := t.TempDir()
	var names []string
	for i := range nodes {
		names = append(names, string(rune('a'+i)))
	}
	c, err := lab.NewCluster(t.Context(), lab.Options{Nodes: names, Members: members, Network: network, Bin: bin, Dir: dir, Agent: flags})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		checkLogs(t, dir)
	})
	return c
}

// checkLogs checks the logs of the hosts' programs for data races, and prints the logs if the test failed.
func checkLogs(t *testing.T, dir string) {
	t.Helper()
	logs, _ := filepath.Glob(dir + "/*.log")
	for _, l := range logs {
		raw, _ := os.ReadFile(l)
		if at := bytes.Index(raw, []byte("DATA RACE")); at >= 0 {
			t.Errorf("%s: %s", filepath.Base(l), raw[at:min(len(raw), at+4000)])
		}
		if t.Failed() && !strings.HasPrefix(filepath.Base(l), "etcd") {
			t.Logf("%s:\n%s", filepath.Base(l), raw[max(0, len(raw)-6000):])
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func attach(t *testing.T, n *lab.Node, name, network string) netip.Addr {
	t.Helper()
	ip, err := n.Attach(t.Context(), name, network)
	must(t, err)
	return ip
}

// wantReach waits until a container reaches an address.
func wantReach(t *testing.T, n *lab.Node, container string, to netip.Addr) time.Duration {
	t.Helper()
	return kerneltest.Eventually(t, func() error { return n.Ping(t.Context(), container, to) })
}

// wantNoLoss sends packets from one node's container to another's before, during and after do. It fails if one is lost.
func wantNoLoss(t *testing.T, n *lab.Node, container string, to netip.Addr, do func()) {
	t.Helper()
	p, err := n.Probe(container, to)
	must(t, err)
	waitForAnswers(t, p)
	do()
	waitForAnswers(t, p)
	l, err := p.Stop()
	must(t, err)
	if l.Lost != 0 {
		t.Errorf("%s", l)
	}
}

// waitForAnswers waits until 50 more packets have been answered. On a busy machine the sender starts late.
func waitForAnswers(t *testing.T, p *lab.Probe) {
	t.Helper()
	before, err := p.Answers()
	must(t, err)
	kerneltest.Eventually(t, func() error {
		now, err := p.Answers()
		if err == nil && now < before+50 {
			err = fmt.Errorf("the probe received %d answers", now-before)
		}
		return err
	})
}

// TestContainersReachEachOther checks with every backend that containers of three hosts reach each other and themselves,
// that the hosts reach them, and that no two containers share an address. The hosts filter by the reverse path, as some
// distributions do.
func TestContainersReachEachOther(t *testing.T) {
	t.Parallel()
	for name, network := range map[string]string{
		"vxlan":     vxlanNet,
		"host-gw":   `{"subnets": [{"cidr": "10.244.0.0/16"}], "backends": [{"type": "host-gw"}]}`,
		"wireguard": `{"subnets": [{"cidr": "10.244.0.0/16"}], "backends": [{"type": "wireguard"}]}`,
		"bgp":       `{"subnets": [{"cidr": "10.244.0.0/16"}, {"cidr": "fd00:244::/64"}], "backends": [{"type": "bgp"}]}`,
		"mixed":     `{"subnets": [{"cidr": "10.244.0.0/16"}, {"cidr": "fd00:244::/64"}], "backends": [{"type": "host-gw", "when": "direct"}, {"type": "vxlan"}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, 3, 1, network)
			var ips []netip.Addr
			for _, n := range c.Nodes {
				_, err := n.Run(t.Context(), "sysctl", "-qw", "net.ipv4.conf.all.rp_filter=1")
				must(t, err)
				ips = append(ips, attach(t, n, "c1", "pods"))
			}
			seen := map[netip.Addr]bool{}
			for i, n := range c.Nodes {
				if seen[ips[i]] {
					t.Errorf("address %s was allocated twice", ips[i])
				}
				seen[ips[i]] = true
				for _, ip := range ips {
					wantReach(t, n, "c1", ip)
					kerneltest.Eventually(t, func() error {
						_, err := n.Run(t.Context(), "ping", "-c", "1", "-W", "1", ip.String())
						return err
					})
				}
			}
			if out, err := c.Nodes[0].Cluster(t.Context(), "node", "list"); err != nil || strings.Count(out, "alive") != 3 {
				t.Errorf("node list: %v\n%s", err, out)
			}
		})
	}
}
