package cluster

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/lab"
)

const fixedNet = `{"subnets": [{"cidr": "10.244.0.0/16"}, {"name": "fixed", "cidr": "10.245.0.0/24", "assign": "cluster"}]}`

// pod attaches a container as a pod with a name.
func pod(t *testing.T, n *lab.Node, container, name string) (ip netip.Addr) {
	t.Helper()
	must(t, n.Container(t.Context(), container))
	env := []string{"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=" + name}
	soon(t, func() (err error) {
		ip, err = n.AddWith(t.Context(), env, container, "fixed", "eth0")
		return err
	})
	return ip
}

// TestFixed checks that a StatefulSet's pod keeps its address on whichever node it restarts, even if its old node is
// dead. All other pods reach it there.
func TestFixed(t *testing.T) {
	t.Parallel()
	c := hosts(t, 3, 1, fixedNet)
	a, b, x := c.Nodes[0], c.Nodes[1], c.Nodes[2]
	for _, n := range c.Nodes {
		must(t, n.Configure("fixed", `{"type": "ptp", "ipam": {"type": "fairlead-ipam", "pool": "fixed", "fixed": true}}`))
	}
	attach(t, x, "client", "pods")
	ip := pod(t, a, "db1", "db-0")
	if !netip.MustParsePrefix("10.245.0.0/24").Contains(ip) {
		t.Fatalf("db-0 has %s", ip)
	}
	if other := pod(t, b, "db2", "db-1"); other == ip {
		t.Errorf("db-1 has db-0's address %s", ip)
	}
	reach(t, x, "client", ip)
	_, err := a.Fairlead(t.Context(), "del", "fixed", "db1")
	must(t, err)
	if again := pod(t, b, "db3", "db-0"); again != ip {
		t.Errorf("db-0 had %s, and has %s on another node", ip, again)
	}
	took := reach(t, x, "client", ip)
	t.Logf("found on another node after %s", took)
	_, err = b.Cluster(t.Context(), "ipam", "check")
	must(t, err)

	b.Agent.Kill() // the node is dead, its pods with it
	_, err = c.Switch(t.Context(), "ip", "link", "set", "dev", b.Name, "down")
	must(t, err)
	if again := pod(t, a, "db4", "db-0"); again != ip {
		t.Errorf("db-0 had %s, and has %s after its node's death", ip, again)
	}
	reach(t, x, "client", ip)
}

// TestMTU checks that a change of a link's MTU changes the tunnel's MTU and that of new containers.
func TestMTU(t *testing.T) {
	t.Parallel()
	c := hosts(t, 2, 1, vxlanNet)
	a, b := c.Nodes[0], c.Nodes[1]
	attach(t, a, "c1", "pods")
	to := attach(t, b, "c1", "pods")
	for underlay, want := range map[int]int{1400: 1350, 9000: 8950} {
		for _, n := range c.Nodes {
			_, err := c.Switch(t.Context(), "ip", "link", "set", "dev", n.Name, "mtu", fmt.Sprint(underlay))
			must(t, err)
			_, err = n.IP(t.Context(), fmt.Sprintf("link set eth0 mtu %d", underlay))
			must(t, err)
		}
		_, err := c.Switch(t.Context(), "ip", "link", "set", "dev", "br0", "mtu", fmt.Sprint(underlay))
		must(t, err)
		soon(t, func() error {
			out, err := a.IP(t.Context(), "-o link show fl-vx.1")
			if err == nil && !strings.Contains(out, fmt.Sprintf(" mtu %d ", want)) {
				err = fmt.Errorf("want %d: %s", want, out)
			}
			return err
		})
		reach(t, a, "c1", to)
	}
}

// TestClamp checks that containers' links get the tunnel's MTU. TCP's MSS is clamped only while one has a larger MTU.
func TestClamp(t *testing.T) {
	t.Parallel()
	c := hosts(t, 2, 1, vxlanNet)
	a, b := c.Nodes[0], c.Nodes[1]
	attach(t, a, "c1", "pods")
	to := attach(t, b, "c1", "pods")
	out, err := a.IP(t.Context(), "-n c1 -o link show eth0")
	if err != nil || !strings.Contains(out, " mtu 1450 ") {
		t.Errorf("%v: %s", err, out)
	}
	clamped := func(want bool) func() error {
		return func() error {
			out, err := a.Run(t.Context(), "nft", "list", "table", "inet", "fairlead-agent")
			if err == nil && strings.Contains(out, "maxseg") != want {
				err = fmt.Errorf("clamped is not %v: %s", want, out)
			}
			return err
		}
	}
	must(t, clamped(false)())
	must(t, a.Configure("tall", `{"type": "ptp", "mtu": 1500, "ipam": {"type": "fairlead-ipam"}}`))
	attach(t, a, "c2", "tall")
	soon(t, clamped(true))
	reach(t, a, "c2", to)
	_, err = a.Fairlead(t.Context(), "del", "tall", "c2")
	must(t, err)
	soon(t, clamped(false))
}

// TestRemoved checks that a removed node's blocks are released after the grace period, and not before.
func TestRemoved(t *testing.T) {
	t.Parallel()
	c := hosts(t, 2, 1, vxlanNet, "--grace", "3s")
	a, b := c.Nodes[0], c.Nodes[1]
	reach(t, a, "c1", func() netip.Addr { attach(t, a, "c1", "pods"); return attach(t, b, "c1", "pods") }())
	if _, err := a.Cluster(t.Context(), "node", "remove", "b"); err == nil || !strings.Contains(err.Error(), "alive") {
		t.Errorf("a node that is alive is removed: %v", err)
	}
	must(t, b.Agent.Stop(5*time.Second))
	var removed time.Time
	soon(t, func() error {
		_, err := a.Cluster(t.Context(), "node", "remove", "b")
		removed = time.Now()
		return err
	})
	routes := func() string {
		out, err := a.IP(t.Context(), "route show proto 103 dev fl-vx.1")
		if err != nil && strings.Contains(err.Error(), "Cannot find device") {
			return ""
		}
		must(t, err)
		return out
	}
	soon(t, func() error {
		if r := routes(); r != "" {
			return fmt.Errorf("routes to it: %s", r)
		}
		return nil
	})
	blocks := func() (held bool) {
		out, err := a.Cluster(t.Context(), "node", "list")
		must(t, err)
		return strings.Contains(out, "removed")
	}
	if !blocks() {
		t.Error("its blocks are free at once")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	must(t, lab.Until(ctx, func() error {
		if blocks() {
			return fmt.Errorf("its blocks are not free")
		}
		return nil
	}))
	if took := time.Since(removed); took < 3*time.Second {
		t.Errorf("its blocks were free after %s", took)
	}
}
