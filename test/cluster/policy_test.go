package cluster

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/lab"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// policyFile writes a file into the directory of a node's policies.
func policyFile(t *testing.T, n *lab.Node, name, text string) {
	t.Helper()
	must(t, os.WriteFile(n.Path("/run/policies/"+name), []byte(text), 0o644))
}

// labelled attaches a container with labels.
func labelled(t *testing.T, n *lab.Node, name, network, labels string) netip.Addr {
	t.Helper()
	must(t, n.Container(t.Context(), name))
	ip, err := n.AddWith(t.Context(), []string{"CNI_ARGS=IgnoreUnknown=1;LABELS=" + labels}, name, network, "eth0")
	must(t, err)
	return ip
}

// wantBlocked waits until a container does not reach an address.
func wantBlocked(t *testing.T, n *lab.Node, container string, to netip.Addr) {
	t.Helper()
	kerneltest.Eventually(t, func() error {
		if n.Ping(t.Context(), container, to) == nil {
			return fmt.Errorf("container %s of host %s reaches %s", container, n.Name, to)
		}
		return nil
	})
}

// TestPolicyFiles enforces policies from files on a host without Kubernetes: between routed containers, and between
// containers of one bridge.
func TestPolicyFiles(t *testing.T) {
	t.Parallel()
	kerneltest.Needs(t, "br_netfilter")
	c := newCluster(t, 1, 1, vxlanNet, "--policy-enabled", "true", "--policy-directory", "/run/policies")
	n := c.Nodes[0]
	_, err := n.Run(t.Context(), "mkdir", "/run/policies")
	must(t, err)
	policyFile(t, n, "db.yaml", "policy: db\nfor: app=db\nin:\n- from: app=web\n")
	must(t, n.Configure("pods", `{"type": "ptp", "ipam": {"type": "fairlead-ipam"}}, {"type": "fairlead-policy", "labels": {"net": "pods"}}`))
	must(t, n.Configure("bridged", `{"type": "bridge", "bridge": "cni5", "isDefaultGateway": true, "bridgeNetfilter": true, "antiSpoof": true,
		"ipam": {"type": "host-local", "subnet": "10.77.0.0/24"}}, {"type": "fairlead-policy", "labels": {"net": "bridged"}}`))
	_, err = n.Run(t.Context(), "sysctl", "-qw", "net.bridge.bridge-nf-call-iptables=0")
	must(t, err)

	db, web := labelled(t, n, "db", "pods", "app:db"), labelled(t, n, "web", "pods", "app:web")
	bdb := labelled(t, n, "bdb", "bridged", "app:db")
	labelled(t, n, "bweb", "bridged", "app:web")
	labelled(t, n, "other", "pods", "app:other")
	labelled(t, n, "bother", "bridged", "")
	for _, to := range []netip.Addr{db, bdb} { // in force when ADD returns
		for _, from := range []string{"other", "bother"} {
			wantNoReach(t, n, from, to)
		}
		wantReach(t, n, "web", to)
		wantReach(t, n, "bweb", to)
	}
	wantReach(t, n, "other", web) // no policy selects it

	// An invalid file changes nothing. A valid one is in force soon, and so is its end.
	policyFile(t, n, "db.yaml", "policy: db\nfor: app=db\nin:\n- form: app=web\n")
	policyFile(t, n, "out.yaml", "policy: out\nfor: net=bridged\nout: []\n")
	wantNoReach(t, n, "other", db)
	wantReach(t, n, "bweb", db)
	policyFile(t, n, "db.yaml", "policy: db\nfor: app=db\nin:\n- from: '*'\n")
	wantReach(t, n, "other", db)
	wantBlocked(t, n, "bother", db)

	// Only a ClusterNetworkPolicy keeps a container from its own host, which always reaches the container.
	self, err := netip.ParseAddr(n.V4.String())
	must(t, err)
	wantReach(t, n, "bother", self)
	policyFile(t, n, "host.yaml", `apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: host}
spec: {tier: Admin, priority: 1, subject: {namespaces: {}}, egress: [{action: Deny, to: [{nodes: {}}]}]}
`)
	wantBlocked(t, n, "bother", self)
	wantBlocked(t, n, "web", self)
	if _, err := n.Run(t.Context(), "ping", "-c", "1", "-W", "2", db.String()); err != nil {
		t.Errorf("the host does not reach its container: %v", err)
	}
	must(t, os.Remove(n.Path("/run/policies/host.yaml")))
	wantReach(t, n, "web", self)

	must(t, os.Remove(n.Path("/run/policies/out.yaml")))
	wantReach(t, n, "bother", db)

	_, err = n.Fairlead(t.Context(), "del", "pods", "db")
	must(t, err)
	kerneltest.Eventually(t, func() error {
		out, err := n.Run(t.Context(), "nft", "list", "map", "inet", "fairlead-policy", "ingress4")
		if err == nil && strings.Contains(out, db.String()+" ") {
			err = fmt.Errorf("%s is left after DEL: %s", db, out)
		}
		return err
	})
}

// TestPolicyStore enforces policies from etcd between containers of two hosts: by labels, through restarts of agents
// and while the store is away.
func TestPolicyStore(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, 1, vxlanNet, "--policy-enabled", "true")
	a, b := c.Nodes[0], c.Nodes[1]
	policy := func(n *lab.Node, args ...string) string {
		t.Helper()
		out, err := n.Fairlead(t.Context(), append([]string{"policy"}, args...)...)
		must(t, err)
		return out
	}
	must(t, os.WriteFile(a.Path("/run/db.yaml"), []byte("policy: db\nfor: app=db\nin:\n- from: app=web\n"), 0o644))
	for _, want := range []string{"would create networkpolicy/default/db", "created networkpolicy/default/db", "unchanged networkpolicy/default/db"} {
		args := []string{"apply", "-f", "/run/db.yaml"}
		if strings.HasPrefix(want, "would") {
			args = append(args, "--dry-run")
		}
		if out := policy(a, args...); strings.TrimSpace(out) != want {
			t.Errorf("policy %v: %q, want %q", args, out, want)
		}
	}
	for _, n := range c.Nodes {
		must(t, n.Configure("pods", `{"type": "ptp", "antiSpoof": true, "ipam": {"type": "fairlead-ipam"}}, {"type": "fairlead-policy"}`))
	}
	db := labelled(t, a, "db", "pods", "app:db")
	labelled(t, a, "other", "pods", "app:other")
	web := labelled(t, b, "web", "pods", "app:web")
	labelled(t, b, "far", "pods", "app:other")
	wantReach(t, b, "web", db) // once host a knows the container's labels
	wantNoReach(t, b, "far", db)
	wantNoReach(t, a, "other", db)

	if out := policy(b, "check"); !strings.Contains(out, "NetworkPolicy default/db") || !strings.Contains(out, "@a") {
		t.Errorf("policy check:\n%s", out)
	}
	must(t, a.Configure("own", `{"type": "ptp", "antiSpoof": true, "ipam": {"type": "host-local", "subnet": "10.77.0.0/24"}}, {"type": "fairlead-policy"}`))
	own := labelled(t, a, "own", "own", "app:db") // the store does not have it
	out, err := a.Fairlead(t.Context(), "policy", "explain", "--kernel", web.String(), own.String(), "80")
	if err != nil || !strings.Contains(out, "the kernel agrees") {
		t.Errorf("policy explain --kernel: %v\n%s", err, out)
	}
	out, err = b.Fairlead(t.Context(), "policy", "explain", web.String(), db.String(), "80")
	if err != nil || !strings.Contains(out, "allowed") {
		t.Errorf("policy explain: %v\n%s", err, out)
	}

	// The last state stays in force without the store, also after a restart of the agent.
	c.Stores[0].Process.Kill()
	a.Agent.Kill()
	must(t, a.Start())
	kerneltest.Eventually(t, func() error { // the new process has written its rules
		_, err := a.Fairlead(t.Context(), "agent", "status")
		return err
	})
	wantNoReach(t, b, "far", db)
	wantReach(t, b, "web", db)
	must(t, c.Stores[0].Start())
	must(t, c.Stores[0].Wait(t.Context()))
	must(t, c.Ready(t.Context())) // the agent does not answer while it starts

	policy(a, "delete", "networkpolicy/default/db")
	wantReach(t, b, "far", db)
	wantReach(t, a, "other", db)
	if out := policy(a, "list"); !strings.HasPrefix(out, "No policies") {
		t.Errorf("policy list:\n%s", out)
	}
}

// TestPolicyInIsolatedNetworks enforces policies in two isolated networks with the same addresses, and between peers.
func TestPolicyInIsolatedNetworks(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 1, vxlanNet, "--policy-enabled", "true", "--policy-directory", "/run/policies")
	n := c.Nodes[0]
	_, err := n.Run(t.Context(), "mkdir", "/run/policies")
	must(t, err)
	policyFile(t, n, "db.yaml", "policy: db\nfor: app=db\nin:\n- from: app=web\n- from: 10.1.0.0/24\n")
	isolatedNets(t, c, "blue --isolated --subnet 10.0.0.0/26 --subnet fd00:1::/122 --peer green", "red --isolated --subnet 10.0.0.0/26 --subnet fd00:1::/122",
		"green --isolated --subnet 10.1.0.0/24 --peer blue")
	for _, network := range []string{"blue", "red", "green"} {
		must(t, n.Configure(network, fmt.Sprintf(`{"type": "fairlead-net", "network": %q, "antiSpoof": true}, {"type": "fairlead-policy"}`, network)))
	}
	pod := func(name, app string) netip.Addr {
		network, _, _ := strings.Cut(name, "-")
		return labelled(t, n, name, network, "app:"+app+";K8S_POD_NAMESPACE=default;K8S_POD_NAME="+name)
	}
	blueDB, redWeb := pod("blue-db", "db"), pod("red-web", "web")
	blueOther, redDB := pod("blue-other", "other"), pod("red-db", "db")
	if blueDB != redWeb || blueOther != redDB {
		t.Fatalf("the networks do not have the same addresses: %v, %v, %v, %v", blueDB, redWeb, blueOther, redDB)
	}
	pod("blue-web", "web")
	pod("green-other", "other")
	wantNoReach(t, n, "blue-other", blueDB) // in force when ADD returns
	wantReach(t, n, "blue-web", blueDB)
	wantReach(t, n, "red-web", redDB) // it has the address of blue-db
	wantReach(t, n, "blue-db", blueOther)
	wantReach(t, n, "green-other", blueDB) // by its address
	explainIsolated(t, n, blueDB, blueOther)

	// A container of a peer counts by its labels, too.
	policyFile(t, n, "db.yaml", "policy: db\nfor: app=db\nin:\n- from: app=other\n")
	wantBlocked(t, n, "blue-web", blueDB)
	wantReach(t, n, "blue-other", blueDB)
	wantReach(t, n, "green-other", blueDB)

	// Another policy cuts what is going on, and other software does not open anything.
	policyFile(t, n, "db.yaml", "policy: db\nfor: app=db\nin: []\n")
	wantBlocked(t, n, "blue-other", blueDB)
	wantBlocked(t, n, "green-other", blueDB)
	wantBlocked(t, n, "red-web", redDB)
	_, err = n.Run(t.Context(), "ip", "netns", "exec", "fairlead-blue", "nft", "flush", "ruleset")
	must(t, err)
	wantBlocked(t, n, "blue-other", blueDB)

	// DEL leaves no address.
	for _, x := range [][2]string{{"blue", "blue-db"}, {"blue", "blue-web"}, {"blue", "blue-other"}} {
		_, err := n.Fairlead(t.Context(), "del", x[0], x[1])
		must(t, err)
	}
	kerneltest.Eventually(t, func() error { // the agent looks every second whether the interfaces are gone
		out, err := n.Run(t.Context(), "ip", "netns", "exec", "fairlead-blue", "nft", "list", "map", "inet", "fairlead-policy", "ingress4")
		if err == nil && strings.Contains(out, ": goto") {
			err = fmt.Errorf("addresses are left after DEL: %s", out)
		}
		return err
	})
}

// explainIsolated asks which rules decide in a network, also about a container of a peer, and which packets they drop.
func explainIsolated(t *testing.T, n *lab.Node, db, other netip.Addr) {
	t.Helper()
	for _, want := range []struct {
		network, from, to, text string
	}{
		{"blue", "default/blue-other", "default/blue-db", fmt.Sprintf("%s -> %s, network blue: dropped\n  egress of the source:       no policy selects default/blue-other\n  ingress of the destination: no NetworkPolicy allows it: NetworkPolicy default/db\n", other, db)},
		{"blue", "default/blue-web", "default/blue-db", "network blue: allowed"},
		{"blue", "default/blue-other", "default/blue-web", "network blue: allowed"},
		{"blue", "default/green-other", "default/blue-db", "ingress of the destination: NetworkPolicy default/db ingress[1]\n"},
		{"green", "default/green-other", "default/blue-db", "ingress of the destination: NetworkPolicy default/db ingress[1]\n"},
		{"red", "default/red-web", "default/red-db", "network red: allowed"},
		{"red", "default/blue-web", "default/red-db", "there is no pod default/blue-web"},
		{"gone", db.String(), db.String(), "this host has no isolated network gone"},
	} {
		out, err := n.Fairlead(t.Context(), "policy", "explain", "--kernel", "--network", want.network, want.from, want.to, "80/udp")
		if err != nil {
			out += err.Error()
		}
		if !strings.Contains(out, want.text) || strings.Contains(want.text, " -> ") && !strings.Contains(out, "the kernel agrees") || strings.Contains(out, "DIFFERENT") {
			t.Errorf("policy explain %+v:\n%s", want, out)
		}
	}
	var out string
	var err error
	ended := make(chan bool)
	go func() {
		defer close(ended)
		out, err = n.Fairlead(context.Background(), "policy", "log", "--network", "blue", "--count", "1", "--for", "20s")
	}()
	for running := true; running && !t.Failed(); {
		wantNoReach(t, n, "blue-other", db)
		select {
		case <-ended:
			running = false
		default:
		}
	}
	want := fmt.Sprintf("default/blue-other (%s) -> default/blue-db (%s) ICMP, network blue, ingress: no NetworkPolicy allows it: default/db\n", other, db)
	if err != nil || !strings.Contains(out, want) {
		t.Errorf("policy log printed %q, want %q: %v", out, want, err)
	}
}

// TestPolicyIsolatedHosts enforces policies from etcd between the containers that two hosts have in isolated networks
// with the same addresses.
func TestPolicyIsolatedHosts(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, 1, vxlanNet, "--policy-enabled", "true")
	a, b := c.Nodes[0], c.Nodes[1]
	must(t, os.WriteFile(a.Path("/run/db.yaml"), []byte("policy: db\nfor: app=db\nin:\n- from: app=web\n---\npolicy: mute\nfor: app=mute\nout:\n- to: app=web\n"), 0o644))
	_, err := a.Fairlead(t.Context(), "policy", "apply", "-f", "/run/db.yaml")
	must(t, err)
	isolatedNets(t, c, "blue --isolated --subnet 10.0.0.0/25", "red --isolated --subnet 10.0.0.0/25") // two blocks each
	for _, n := range c.Nodes {
		for _, network := range []string{"blue", "red"} {
			must(t, n.Configure(network, fmt.Sprintf(`{"type": "fairlead-net", "network": %q, "antiSpoof": true}, {"type": "fairlead-policy"}`, network)))
		}
	}
	db := labelled(t, a, "db", "blue", "app:db")
	labelled(t, a, "red-db", "red", "app:db")
	web := labelled(t, b, "web", "blue", "app:web")
	labelled(t, b, "other", "blue", "app:other")
	labelled(t, b, "mute", "blue", "app:mute")
	labelled(t, b, "red-other", "red", "app:web") // has an address of blue's hosts, and other labels
	wantReach(t, b, "web", db)
	wantReach(t, b, "mute", web)
	wantNoReach(t, b, "other", db)
	wantNoReach(t, b, "mute", db)
	_, err = b.Fairlead(t.Context(), "del", "blue", "web")
	must(t, err)
	if reused := labelled(t, b, "next", "blue", "app:other"); reused != web {
		t.Logf("the next container has %s, not %s", reused, web)
	}
	wantNoReach(t, b, "next", db)
}
