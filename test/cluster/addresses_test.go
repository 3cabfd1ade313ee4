package cluster

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/lab"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

const fixedNet = `{"subnets": [{"cidr": "10.244.0.0/16"}, {"name": "fixed", "cidr": "10.245.0.0/24", "assign": "cluster"}]}`

// pod attaches a container as a named pod.
func pod(t *testing.T, n *lab.Node, container, name string) (ip netip.Addr) {
	t.Helper()
	must(t, n.Container(t.Context(), container))
	env := []string{"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=" + name}
	kerneltest.Eventually(t, func() (err error) {
		ip, err = n.AddWith(t.Context(), env, container, "fixed", "eth0")
		return err
	})
	return ip
}

// TestFixedAddressFollowsPod checks that a StatefulSet's pod keeps its address on whichever node it restarts, even if
// its old node is dead. All other pods reach it there.
func TestFixedAddressFollowsPod(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 1, fixedNet)
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
		t.Errorf("db-1 has the address of db-0, %s", ip)
	}
	wantReach(t, x, "client", ip)
	_, err := a.Fairlead(t.Context(), "del", "fixed", "db1")
	must(t, err)
	if got := pod(t, b, "db3", "db-0"); got != ip {
		t.Errorf("db-0 moved from %s to %s on another node", ip, got)
	}
	elapsed := wantReach(t, x, "client", ip)
	t.Logf("reachable on the other node after %s", elapsed)
	_, err = b.Cluster(t.Context(), "ipam", "check")
	must(t, err)

	b.Agent.Kill() // the node and its pods are dead
	_, err = c.Switch(t.Context(), "ip", "link", "set", "dev", b.Name, "down")
	must(t, err)
	if got := pod(t, a, "db4", "db-0"); got != ip {
		t.Errorf("db-0 moved from %s to %s after its node died", ip, got)
	}
	wantReach(t, x, "client", ip)
}

// TestMTUFollowsUnderlay checks that a change of a link's MTU changes the MTU of the tunnel and of new containers.
func TestMTUFollowsUnderlay(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, 1, vxlanNet)
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
		kerneltest.Eventually(t, func() error {
			out, err := a.IP(t.Context(), "-o link show fl-vx.1")
			if err == nil && !strings.Contains(out, fmt.Sprintf(" mtu %d ", want)) {
				err = fmt.Errorf("want %d: %s", want, out)
			}
			return err
		})
		wantReach(t, a, "c1", to)
	}
}

// TestMSSClamp checks that containers' links get the tunnel's MTU. TCP's MSS is clamped only while a container has a
// larger MTU.
func TestMSSClamp(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, 1, vxlanNet)
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
				err = fmt.Errorf("want an MSS clamp: %v: %s", want, out)
			}
			return err
		}
	}
	must(t, clamped(false)())
	must(t, a.Configure("large-mtu", `{"type": "ptp", "mtu": 1500, "ipam": {"type": "fairlead-ipam"}}`))
	attach(t, a, "c2", "large-mtu")
	kerneltest.Eventually(t, clamped(true))
	wantReach(t, a, "c2", to)
	_, err = a.Fairlead(t.Context(), "del", "large-mtu", "c2")
	must(t, err)
	kerneltest.Eventually(t, clamped(false))
}

// TestRemovedNodeReleasesBlocks checks that a removed node's blocks are released after the grace period, and not
// before.
func TestRemovedNodeReleasesBlocks(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, 1, vxlanNet, "--grace", "3s")
	a, b := c.Nodes[0], c.Nodes[1]
	wantReach(t, a, "c1", func() netip.Addr { attach(t, a, "c1", "pods"); return attach(t, b, "c1", "pods") }())
	if _, err := a.Cluster(t.Context(), "node", "remove", "b"); err == nil || !strings.Contains(err.Error(), "alive") {
		t.Errorf("removing a live node: %v", err)
	}
	must(t, b.Agent.Stop(5*time.Second))
	var removed time.Time
	kerneltest.Eventually(t, func() error {
		removed = time.Now() // before the command, which may end late
		_, err := a.Cluster(t.Context(), "node", "remove", "b")
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
	kerneltest.Eventually(t, func() error {
		if r := routes(); r != "" {
			return fmt.Errorf("routes to the removed node: %s", r)
		}
		return nil
	})
	blocksKept := func() (kept bool) {
		out, err := a.Cluster(t.Context(), "node", "list")
		must(t, err)
		return strings.Contains(out, "removed")
	}
	if !blocksKept() && time.Since(removed) < 3*time.Second {
		t.Error("its blocks were released at once")
	}
	kerneltest.Eventually(t, func() error {
		if blocksKept() {
			return errors.New("its blocks are not released")
		}
		return nil
	})
	if elapsed := time.Since(removed); elapsed < 3*time.Second {
		t.Errorf("its blocks were released after %s", elapsed)
	}
}

// TestRestartWithRequestedAddress restarts a container that requests its address: its namespace ends without a DEL, and
// the runtime adds the container again.
func TestRestartWithRequestedAddress(t *testing.T) {
	t.Parallel()
	n := newCluster(t, 1, 1, `{"subnets": [{"cidr": "10.244.0.0/16"}]}`).Nodes[0]
	ip := attach(t, n, "web", "pods")
	_, err := n.Fairlead(t.Context(), "del", "pods", "web")
	must(t, err)
	env := []string{"CNI_ARGS=IP=" + ip.String()}
	for range 2 {
		got, err := n.AddWith(t.Context(), env, "web", "pods", "eth0")
		if err != nil || got != ip {
			t.Fatalf("got %v, %v, want %v", got, err, ip)
		}
		_, err = n.IP(t.Context(), "netns del web")
		must(t, err)
		must(t, n.Container(t.Context(), "web"))
	}
}
