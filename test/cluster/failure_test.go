package cluster

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/lab"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestNoPacketLoss checks that no failure of agents or of the store interrupts traffic. One packet per millisecond is
// sent and none is lost, and new containers get addresses from their host's own blocks.
func TestNoPacketLoss(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, 1, vxlanNet)
	a, b, store := c.Nodes[0], c.Nodes[1], c.Stores[0]
	attach(t, a, "c1", "pods")
	to := attach(t, b, "c1", "pods")
	wantReach(t, a, "c1", to)
	count := 1
	attachMore := func() {
		count++
		name := fmt.Sprint("c", count)
		ip := attach(t, b, name, "pods")
		wantReach(t, a, "c1", ip)
	}
	for _, row := range []struct {
		what string
		do   func()
	}{
		{"agent stopped", func() { must(t, a.Agent.Stop(5*time.Second)) }},
		{"agent started", func() { must(t, a.Start()); must(t, c.Ready(t.Context())) }},
		{"agents killed and started", func() {
			for _, n := range c.Nodes {
				n.Agent.Kill()
				attachMore()
				must(t, n.Start())
			}
			must(t, c.Ready(t.Context()))
		}},
		{"agent suspended", func() {
			a.Agent.Signal(syscall.SIGSTOP)
			attachMore()
			a.Agent.Signal(syscall.SIGCONT)
		}},
		{"store killed", func() { store.Process.Kill(); time.Sleep(time.Second); attachMore() }},
		{"agent started without a store", func() {
			a.Agent.Kill()
			must(t, a.Start())
			kerneltest.Eventually(t, func() error { _, err := a.Fairlead(t.Context(), "agent", "status"); return err })
			attachMore()
		}},
		{"store is back", func() {
			must(t, store.Start())
			must(t, store.Wait(t.Context()))
			must(t, c.Ready(t.Context()))
			attachMore()
		}},
		{"hosts join and leave", func() { // each change rewrites the nftables table
			for _, name := range []string{"x", "y", "z"} {
				n, err := c.Join(t.Context(), name)
				must(t, err)
				must(t, n.Start())
				kerneltest.Eventually(t, func() error { _, err := n.Fairlead(t.Context(), "agent", "status"); return err })
				wantReach(t, a, "c1", attach(t, n, "c1", "pods"))
				must(t, n.Agent.Stop(5*time.Second))
				kerneltest.Eventually(t, func() error { _, err := a.Cluster(t.Context(), "node", "remove", name); return err })
			}
		}},
	} {
		t.Log(row.what)
		wantNoLoss(t, a, "c1", to, row.do)
	}
}

// TestEtcdQuorumLoss stops one of three etcd members, and then a second. Without a quorum the data path stays as it is;
// when the quorum is back, the agents continue.
func TestEtcdQuorumLoss(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, 3, vxlanNet)
	a, b := c.Nodes[0], c.Nodes[1]
	attach(t, a, "c1", "pods")
	to := attach(t, b, "c1", "pods")
	wantReach(t, a, "c1", to)
	wantNoLoss(t, a, "c1", to, func() {
		c.Stores[0].Process.Kill()
		create := func(name string) error {
			_, err := b.Cluster(t.Context(), "network", "create", name, "--isolated", "--subnet", "10.9.0.0/16")
			return err
		}
		kerneltest.Eventually(t, func() error { return create("one-lost") })
		c.Stores[1].Process.Kill()
		time.Sleep(time.Second)
		if err := create("no-quorum"); err == nil {
			t.Error("a network was created without a quorum")
		}
		wantReach(t, a, "c1", attach(t, b, "c2", "pods"))
		for _, m := range c.Stores[:2] {
			must(t, m.Start())
		}
		for _, m := range c.Stores {
			must(t, m.Wait(t.Context()))
		}
		kerneltest.Eventually(t, func() error { return create("back") })
	})
	must(t, c.Ready(t.Context()))
}

// TestAgentRestoresDeletedObjects checks that the agent restores objects that an administrator deletes or changes, long
// before its next periodic reconciliation.
func TestAgentRestoresDeletedObjects(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, 1, vxlanNet)
	a, b := c.Nodes[0], c.Nodes[1]
	attach(t, a, "c1", "pods")
	to := attach(t, b, "c1", "pods")
	wantReach(t, a, "c1", to)
	for _, command := range []string{
		"ip link del fl-vx.1", "ip link set fl-vx.1 down", "ip route flush proto 103", "ip neigh flush dev fl-vx.1 nud permanent",
		"ip link set fl-vx.1 mtu 1280", "nft flush ruleset", "sysctl -w net.ipv4.ip_forward=0",
		"sysctl -w net/ipv4/conf/eth0/forwarding=0", "sysctl -w net/ipv4/conf/fl-vx.1/forwarding=0",
	} {
		before := state(t, a)
		if _, err := a.Run(t.Context(), strings.Fields(command)...); err != nil {
			t.Errorf("%s: %v", command, err)
			continue
		}
		start, limit := time.Now(), kerneltest.Slow(time.Second) // without an event it takes a minute
		var asked time.Time
		kerneltest.Eventually(t, func() error {
			asked = time.Now() // the commands that ask take long on a busy machine
			if now := state(t, a); now != before {
				return fmt.Errorf("after %s the state is\n%s\nwant\n%s", command, now, before)
			}
			return nil
		})
		if elapsed := asked.Sub(start); elapsed > max(limit, kerneltest.Slow(time.Second)) {
			t.Errorf("%s: the repair took %s", command, elapsed)
		}
		wantReach(t, a, "c1", to)
	}
}

// state returns the objects that the agent created on a node.
func state(t *testing.T, n *lab.Node) (all string) {
	t.Helper()
	for _, argv := range []string{"ip -o -d link show type vxlan", "ip route show proto 103", "ip neigh show nud permanent", "bridge fdb show dev fl-vx.1", "nft list ruleset", "sysctl net.ipv4.ip_forward",
		"sysctl net/ipv4/conf/eth0/forwarding net/ipv4/conf/fl-vx.1/forwarding"} {
		out, _ := n.Run(t.Context(), strings.Fields(argv)...) // a missing link shows as a difference
		for line := range strings.Lines(out) {
			if _, rest, ok := strings.Cut(line, ": "); ok && strings.Contains(line, "mtu") {
				line = rest // a link that was created again has another index
			}
			all += line
		}
	}
	return all
}

// TestPartition disconnects a node and reconnects it. It continues, the other nodes are not affected, and all nodes keep
// their routes.
func TestPartition(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 1, vxlanNet)
	a, b, x := c.Nodes[0], c.Nodes[1], c.Nodes[2]
	attach(t, a, "c1", "pods")
	toB, toX := attach(t, b, "c1", "pods"), attach(t, x, "c1", "pods")
	wantReach(t, a, "c1", toX)
	wantReach(t, a, "c1", toB)
	wantNoLoss(t, a, "c1", toB, func() {
		_, err := c.Switch(t.Context(), "ip", "link", "set", "dev", x.Name, "down")
		must(t, err)
		local := attach(t, x, "c2", "pods") // it works without the others
		must(t, x.Ping(t.Context(), "c1", local))
		kept := func(n *lab.Node) string { return kerneltest.Mask(state(t, n), kerneltest.Counters) }
		ofA, ofX := kept(a), kept(x)
		time.Sleep(3 * time.Second)
		for n, before := range map[*lab.Node]string{a: ofA, x: ofX} {
			if now := kept(n); now != before {
				t.Errorf("without the connection, node %s changed:\n%s", n.Name, kerneltest.Diff(before, now))
			}
		}
		_, err = c.Switch(t.Context(), "ip", "link", "set", "dev", x.Name, "up")
		must(t, err)
		wantReach(t, a, "c1", local)
	})
	must(t, c.Ready(t.Context()))
}

// TestDuplicateNodeName checks that a second agent with the same name refuses to start and reports the name. A machine
// that replaces a dead one under its name gets a block of its own.
func TestDuplicateNodeName(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 1, vxlanNet)
	a, b, x := c.Nodes[0], c.Nodes[1], c.Nodes[2]
	attach(t, a, "c1", "pods")
	blocks := func() string {
		out, err := a.Cluster(t.Context(), "node", "show", "b")
		must(t, err)
		_, rest, _ := strings.Cut(out, "blocks")
		line, _, _ := strings.Cut(rest, "\n")
		return line
	}
	before := blocks()
	twin, err := c.Host(t.Context(), "twin")
	must(t, err)
	out, err := twin.Run(t.Context(), filepath.Join(bin, "fairlead"), "agent", "--node", "b", "--store-etcd-endpoints", c.Endpoints())
	if err == nil || !strings.Contains(err.Error(), "another agent uses the node name b") {
		t.Errorf("second agent with the same name: %v\n%s", err, out)
	}
	second, err := b.Fairlead(t.Context(), "agent", "--node", "other", "--store-etcd-endpoints", c.Endpoints())
	if err == nil || !strings.Contains(err.Error(), "another agent runs on this host") {
		t.Errorf("second agent on the same host: %v\n%s", err, second)
	}
	toX := attach(t, x, "c1", "pods")
	wantReach(t, a, "c1", toX)
	wantNoLoss(t, a, "c1", toX, func() {
		replaceNode(t, c, twin, func() error {
			if got := blocks(); got == before {
				return fmt.Errorf("the blocks are %s: want another one for the new machine", got)
			}
			return nil
		})
	})
}

// replaceNode kills node b, and starts another machine under its name. The other nodes get routes to the new machine.
func replaceNode(t *testing.T, c *lab.Cluster, twin *lab.Host, check func() error) {
	t.Helper()
	a, b := c.Nodes[0], c.Nodes[1]
	b.Agent.Kill()
	must(t, os.RemoveAll(b.Path("/var/lib/cni")))
	log := filepath.Join(c.Dir, "twin.log")
	var p *lab.Process
	t.Cleanup(func() {
		if p != nil {
			p.Kill()
		}
	})
	deadline := time.Now().Add(kerneltest.Slow(60 * time.Second))
	for {
		var err error
		p, err = twin.Start(log, nil, filepath.Join(bin, "fairlead"), "agent", "--node", "b", "--store-etcd-endpoints", c.Endpoints())
		must(t, err)
		select {
		case <-p.Done(): // the dead node's name stays locked for some seconds
			if time.Now().After(deadline) {
				t.Fatal(p.Log())
			}
			time.Sleep(time.Second)
			continue
		case <-time.After(kerneltest.Slow(2 * time.Second)):
		}
		break
	}
	kerneltest.Eventually(t, check)
	kerneltest.Eventually(t, func() error {
		out, err := a.Run(t.Context(), "bridge", "fdb", "show", "dev", "fl-vx.1")
		if err == nil && !strings.Contains(out, twin.V4.String()) {
			err = fmt.Errorf("no forwarding entry for %s: %s", twin.V4, out)
		}
		return err
	})
}

// TestReboot checks that a rebooted host restores the network before the first request, with the same state.
func TestReboot(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, 1, vxlanNet)
	a, b := c.Nodes[0], c.Nodes[1]
	attach(t, a, "c1", "pods")
	wantReach(t, a, "c1", attach(t, b, "c1", "pods"))
	kerneltest.Eventually(t, func() error { // the agent saves its state within a second
		raw, err := os.ReadFile(b.Path("/var/lib/cni/fairlead/snapshot"))
		if err == nil && strings.Count(string(raw), "blocks/") < 2 {
			err = fmt.Errorf("the snapshot lacks a block")
		}
		return err
	})
	b.Agent.Kill()
	for _, line := range []string{"netns del c1", "link del fl-vx.1", "route flush proto 103"} {
		_, err := b.IP(t.Context(), line)
		must(t, err)
	}
	_, err := b.Run(t.Context(), "nft", "flush", "ruleset")
	must(t, err)
	must(t, os.RemoveAll(b.Path("/run/fairlead")))
	c.Stores[0].Process.Kill() // the store does not answer either
	must(t, b.Start())
	kerneltest.Eventually(t, func() error { _, err := b.Fairlead(t.Context(), "agent", "status"); return err })
	var to netip.Addr
	kerneltest.Eventually(t, func() (err error) { to, err = b.Attach(t.Context(), "c2", "pods"); return err })
	wantReach(t, a, "c1", to)
}
