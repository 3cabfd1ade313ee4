package cluster

import (
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
