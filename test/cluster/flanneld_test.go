package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/lab"
	"github.com/fairlead/fairlead/test/flanneld"
)

// flannelPrefix is where flanneld has its keys.
const flannelPrefix = "/coreos.com/network/"

// flannelVariable asks for the tests with a real flanneld, which is built for them.
const flannelVariable = "FAIRLEAD_FLANNELD"

// realFlanneld is the program; "" where nobody asked for it.
func realFlanneld(t *testing.T) string {
	t.Helper()
	if os.Getenv(flannelVariable) == "" {
		t.Logf("not run: %s is not set; make test-flannel builds flanneld and sets it", flannelVariable)
		return ""
	}
	path, err := flanneld.Program()
	must(t, err)
	return path
}

// beside are hosts of which none runs anything yet, and a store with flannel's
// configuration; what agents are started there know flannel's keys.
func beside(t *testing.T, conf string, names ...string) (*lab.Cluster, []*lab.Node) {
	t.Helper()
	dir := t.TempDir()
	c, err := lab.NewCluster(t.Context(), lab.Options{Members: 1, Bin: bin, Dir: dir, Agent: []string{"--flannel-prefix", flannelPrefix, "--flannel-subnet-file", subnetFile}})
	must(t, err)
	t.Cleanup(func() {
		c.Close()
		if t.Failed() {
			logs, _ := filepath.Glob(dir + "/[a-z]*.log")
			for _, l := range logs {
				if raw, _ := os.ReadFile(l); !strings.Contains(l, "etcd") {
					t.Logf("%s:\n%s", filepath.Base(l), raw[max(0, len(raw)-5000):])
				}
			}
		}
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

// startFlanneld runs it on a host, with that host's usual flags.
func startFlanneld(t *testing.T, c *lab.Cluster, n *lab.Node, program string) *lab.Process {
	t.Helper()
	p, err := n.Host.Start(filepath.Join(c.Dir, n.Name+"-flanneld.log"), nil, program, "--etcd-endpoints", c.Endpoints(), "--etcd-prefix", strings.TrimSuffix(flannelPrefix, "/"),
		"--iface", "eth0", "--subnet-file", subnetFile, "--ip-masq")
	must(t, err)
	return p
}

// joined waits until a node's agent is ready and has so many peers.
func joined(t *testing.T, n *lab.Node, peers int) {
	t.Helper()
	soon(t, func() error {
		out, err := n.Fairlead(t.Context(), "agent", "status", "--json")
		if err == nil && !strings.Contains(out, fmt.Sprintf(`"peers": %d,`, peers)) {
			err = errors.New(out)
		}
		return err
	})
}

const nftConf = `{"Network": "10.244.0.0/16", "EnableNFTables": true, "Backend": {"Type": "vxlan"}}`

// all reach all: each container each other host's.
func allReach(t *testing.T, nodes []*lab.Node, ips []netip.Addr) {
	t.Helper()
	for i, n := range nodes {
		for j, ip := range ips {
			if i != j {
				reach(t, n, "c1", ip)
			}
		}
	}
}

// Two hosts with flanneld and one with our agent are one cluster; then a host is
// switched while packets go to and from it, and back.
func TestBesideFlanneld(t *testing.T) {
	t.Parallel()
	program := realFlanneld(t)
	if program == "" {
		return
	}
	c, nodes := beside(t, nftConf, "a", "b", "x")
	a, b, x := nodes[0], nodes[1], nodes[2]
	fa, fb := startFlanneld(t, c, a, program), startFlanneld(t, c, b, program)
	leased(t, a)
	had, _ := leased(t, b)
	must(t, x.Start())
	joined(t, x, 2)
	var ips []netip.Addr
	for _, n := range nodes {
		leased(t, n)
		ips = append(ips, attach(t, n, "c1", "cbr0"))
	}
	allReach(t, nodes, ips)
	keys, err := c.Keys(t.Context(), flannelPrefix)
	must(t, err)
	t.Logf("flannel's keys: %v", keys)

	switched := func(what string, do func()) {
		t.Helper()
		probes := []*lab.Probe{}
		for _, p := range []struct {
			from *lab.Node
			to   netip.Addr
		}{{a, ips[1]}, {b, ips[0]}, {b, ips[2]}, {x, ips[1]}, {a, ips[2]}} {
			probe, err := p.from.Probe("c1", p.to)
			must(t, err)
			probes = append(probes, probe)
			answered(t, probe)
		}
		do()
		time.Sleep(time.Second)
		for i, p := range probes {
			l, err := p.Stop()
			must(t, err)
			t.Logf("%s: probe %d: %s", what, i, l)
			if l.Lost != 0 {
				t.Errorf("%s: probe %d: %s", what, i, l)
			}
		}
	}
	switched("b from flanneld to ours", func() {
		_ = fb.Stop(5 * time.Second)
		must(t, b.Start())
		joined(t, b, 2)
	})
	if now, _ := leased(t, b); now != had {
		t.Errorf("the host had %s, and has %s", had, now)
	}
	if out, err := b.Run(t.Context(), "ip", "-o", "link", "show", "type", "vxlan"); err != nil || strings.Count(out, "\n") != 1 || !strings.Contains(out, "flannel.1") {
		t.Errorf("the tunnel is not flannel's: %v\n%s", err, out)
	}
	must(t, b.Container(context.Background(), "c2"))
	more, err := b.Add(t.Context(), "c2", "cbr0", "eth0")
	must(t, err)
	reach(t, a, "c1", more)
	addressesAgree2(t, b)
	switched("a from flanneld to ours", func() {
		fa.Kill()
		must(t, a.Start())
		joined(t, a, 2)
	})
	allReach(t, nodes, ips)
	switched("a back to flanneld", func() {
		must(t, a.Agent.Stop(5*time.Second))
		fa = startFlanneld(t, c, a, program)
		soon(t, func() error {
			if !strings.Contains(fa.Log(), "Running backend") {
				return errors.New("flanneld does not run yet")
			}
			return nil
		})
	})
	allReach(t, nodes, ips)
	out, err := x.Run(t.Context(), "ip", "route")
	must(t, err)
	t.Log(out)
}

func addressesAgree2(t *testing.T, n *lab.Node) {
	t.Helper()
	if out, err := n.Cluster(t.Context(), "ipam", "check"); err != nil {
		t.Errorf("ipam check: %v\n%s", err, out)
	}
}
