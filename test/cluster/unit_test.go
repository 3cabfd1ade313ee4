package cluster

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestAgentUnitSandbox runs the agent as fairlead-agent.service does: with its arguments and capabilities, in a mount
// namespace whose mounts do not reach the host, and with a file system of which only /run and /var/lib are writable.
// Plugins on the host must still see the network namespaces of isolated networks.
func TestAgentUnitSandbox(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, 1, vxlanNet)
	a, b := c.Nodes[0], c.Nodes[1]
	must(t, a.Agent.Stop(5*time.Second))
	unit := readUnit(t)
	_, err := a.Run(t.Context(), "mount", "--make-rshared", "/")
	must(t, err)
	caps := "-all"
	for name := range strings.FieldsSeq(unit["CapabilityBoundingSet"]) {
		caps += ",+" + strings.ToLower(strings.TrimPrefix(name, "CAP_"))
	}
	start := strings.Fields(unit["ExecStart"])[2:] // without the program and "agent"
	for i, arg := range start {
		start[i] = strings.ReplaceAll(arg, "/proc/1/ns/mnt", a.MountNS())
	}
	a.Wrap = []string{"unshare", "--mount", "--propagation", "slave", "sh", "-c", `mount -o remount,bind,ro / && exec setpriv --bounding-set "$0" --inh-caps -all --no-new-privs -- "$@"`, caps}
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
	eventually(t, func() error {
		if _, err := os.Stat(path); err == nil {
			return fmt.Errorf("%s exists, but the node has no block of the network any more", filepath.Base(path))
		}
		return nil
	})
}

// readUnit returns the settings of fairlead-agent.service.
func readUnit(t *testing.T) map[string]string {
	t.Helper()
	raw, err := os.ReadFile("../../contrib/systemd/fairlead-agent.service")
	must(t, err)
	out := map[string]string{}
	for l := range strings.Lines(string(raw)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(l), "="); ok && !strings.HasPrefix(l, "#") {
			out[key] = value
		}
	}
	if !strings.HasPrefix(out["ExecStart"], "/usr/bin/fairlead agent ") || out["ProtectSystem"] != "strict" || out["CapabilityBoundingSet"] == "" {
		t.Fatalf("the unit has %v", out)
	}
	return out
}
