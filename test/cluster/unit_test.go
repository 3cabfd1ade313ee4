package cluster

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/systemdunit"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestAgentUnitSandbox runs the agent as fairlead-agent.service does: with its arguments and capabilities, in a mount
// namespace whose mounts do not reach the host, and with a file system of which only /run and /var/lib are writable.
// Plugins on the host must still see the network namespaces of isolated networks.
func TestAgentUnitSandbox(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, 1, vxlanNet)
	a, b := c.Nodes[0], c.Nodes[1]
	must(t, a.Agent.Stop(5*time.Second))
	unit := systemdunit.Read(t, "fairlead-agent")
	if unit["ProtectSystem"] != "strict" {
		t.Errorf("ProtectSystem=%s: the sandbox here is stricter than the unit's", unit["ProtectSystem"])
	}
	_, err := a.Run(t.Context(), "mount", "--make-rshared", "/")
	must(t, err)
	start := unit.Args()[1:] // without "agent"
	for i, arg := range start {
		start[i] = strings.ReplaceAll(arg, "/proc/1/ns/mnt", a.MountNS())
	}
	a.Wrap = slices.Concat([]string{"unshare", "--mount", "--propagation", "slave", "sh", "-c", `mount -o remount,bind,ro / && exec "$0" "$@"`},
		systemdunit.Setpriv(unit.Capabilities()), []string{"--no-new-privs", "--"})
	a.Flags = start
	must(t, a.Start())
	must(t, c.Ready(t.Context()))

	isolatedNets(t, c, "blue --isolated --subnet 10.0.0.0/24")
	one, two := attach(t, a, "one", "blue"), attach(t, b, "two", "blue")
	wantReach(t, a, "one", two)
	path := a.Path("/run/netns/fairlead-blue")
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the host does not see the network's namespace: %v", err)
	}
	if out, err := a.Run(t.Context(), "ip", "-n", "fairlead-blue", "link"); err != nil || !strings.Contains(out, "vxlan") {
		t.Errorf("the network's namespace on the host: %v\n%s", err, out)
	}
	_, err = a.Fairlead(t.Context(), "del", "blue", "one")
	must(t, err)
	_, err = a.Cluster(t.Context(), "ipam", "release", netip.PrefixFrom(one, 26).Masked().String(), "--network", "blue")
	must(t, err)
	kerneltest.Eventually(t, func() error {
		if _, err := os.Stat(path); err == nil {
			return fmt.Errorf("%s exists, but the node has no block of the network any more", filepath.Base(path))
		}
		return nil
	})
}
