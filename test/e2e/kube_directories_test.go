package e2e

import (
	"strings"
	"testing"
)

// The directories of CNI in k3s.
const (
	k3sPlugins = "/var/lib/rancher/k3s/data/cni"
	k3sLists   = "/var/lib/rancher/k3s/agent/etc/cni/net.d"
)

// otherDirectories moves all nodes to the directories of k3s, while pods answer requests, and uninstalls Fairlead there. As
// in k3s, the directory of plugins has only links before.
func otherDirectories(t *testing.T, c *cluster) string {
	before := map[string]string{}
	listing := "cd " + k3sPlugins + "; ls -lA --time-style=+ | tail -n +2"
	for _, n := range c.hosts {
		n.shell(t, "mkdir -p "+k3sPlugins+" "+k3sLists+"; cd "+k3sPlugins+"; for p in bridge host-local loopback portmap; do ln -s /mnt/reference/$p $p; done")
		before[n.name] = n.shell(t, listing)
	}
	t.Cleanup(func() {
		for _, n := range c.hosts {
			n.setDirectories(t, "/opt/cni/bin", confDir)
			n.shell(t, "rm -r /var/lib/rancher")
		}
		c.applyAgents(t)
		c.waitForAgents(t, len(c.hosts)-1)
	})
	pods := c.startWeb(t, lingerSeconds)
	summary := c.underLoad(t, pods, func() {
		c.mustFairlead(t, "install", "--pod-cidr="+podRange, "--set=cni.binaries="+k3sPlugins, "--set=cni.directory="+k3sLists, "--timeout=110s", "--no-check")
		for _, n := range c.hosts {
			n.shell(t, "rm "+confDir+"/*") // a new node would not have it
			n.setDirectories(t, k3sPlugins, k3sLists)
		}
		c.replaceWeb(t, pods)
		if out := c.mustFairlead(t, "status", "--check"); !strings.Contains(out, "All checks passed") {
			t.Errorf("status --check printed\n%s", out)
		}
	})
	c.checkHealthy(t)
	listed := 0
	for _, n := range c.hosts {
		if out := n.shell(t, "ls "+confDir+"; readlink "+k3sPlugins+"/bridge; ls "+k3sLists); out != "fairlead-cni\n10-fairlead.conflist\n" {
			t.Errorf("%s has\n%s", n.name, out)
		}
		listed += strings.Count(n.shell(t, k3sPlugins+"/fairlead list"), kubeNetwork+" ")
	}
	if listed != len(pods) {
		t.Errorf("fairlead list shows %d pods on all nodes, want %d", listed, len(pods))
	}
	c.delete(t, "web.yaml")
	c.mustFairlead(t, "uninstall", "--timeout=110s")
	for _, n := range c.hosts {
		if after := n.shell(t, listing+"; ls -A "+k3sLists); after != before[n.name] {
			t.Errorf("%s has in the directories\n%safter uninstall, before it were\n%s", n.name, after, before[n.name])
		}
	}
	return summary + "; uninstalled there, too"
}

// setDirectories restarts containerd with the given directories of plugins and lists.
func (n *kubeNode) setDirectories(t *testing.T, plugins, lists string) {
	t.Helper()
	n.shell(t, `sed -i 's|bin_dirs = .*|bin_dirs = ["`+plugins+`"]|; s|conf_dir = .*|conf_dir = "`+lists+`"|' /etc/containerd/config.toml; kill `+n.containerd)
	n.startContainerd(t)
}
