package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/reference"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// copyRelease copies the image and the manifest to the paths in the tutorial's commands.
func copyRelease(t *testing.T, p programs) {
	t.Helper()
	folder := filepath.Join(p.dir, "contrib", "kubernetes")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := copyFile("../../contrib/kubernetes/plugins.yaml", filepath.Join(folder, "plugins.yaml")); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(p.dir, "bin")
	image := filepath.Join(bin, "fairlead-0.1.0-image.tar")
	if _, err := os.Stat(image); err == nil {
		return
	}
	out, err := exec.Command("go", "run", "../../contrib/image", "-o", image,
		filepath.Join(bin, "fairlead"), filepath.Join(bin, "fairlead-cni")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// referencePlugins builds the reference plugins of the network list, and returns their directory.
func referencePlugins(t *testing.T) (dir string) {
	t.Helper()
	for _, name := range []string{"bridge", "host-local", "portmap", "bandwidth", "firewall", "loopback"} {
		dir = filepath.Dir(reference.Plugin(t, name))
	}
	return dir
}

// daemonSet starts with nodes that run pods with the reference plugins, follows docs/tutorials/kubernetes.md, and
// uninstalls again.
func daemonSet(t *testing.T, c *cluster) string {
	t.Cleanup(func() {
		for _, n := range c.hosts {
			n.shell(t, "rm -rf /opt/cni/bin; cp -a /mnt/cni /opt/cni/bin")
		}
	})
	for i, n := range c.hosts {
		n.shell(t, "rm -rf /opt/cni/bin; mkdir /opt/cni/bin; cd /mnt/reference; cp bridge host-local portmap bandwidth firewall loopback /opt/cni/bin/\n"+
			"cd /opt/cni/bin; sha256sum * >/run/before")
		if i > 0 {
			n.shell(t, "ctr -n k8s.io images import /mnt/e2e/bin/fairlead-0.1.0-image.tar")
		}
	}
	pods := c.startWeb(t, lingerSeconds)
	t.Cleanup(func() {
		c.mustKubectl(t, "-n", "kube-system", "delete", "daemonset", "fairlead", "--ignore-not-found", "--cascade=foreground")
	})
	start := time.Now()
	c.hosts[0].shell(t, "mkdir -p /usr/share/doc/fairlead; ln -sfn /mnt/e2e/contrib/kubernetes /usr/share/doc/fairlead/kubernetes; cd /mnt/e2e/bin\n"+
		strings.Join(tutorialCommands(t, "kubernetes"), ""))
	elapsed := time.Since(start)
	for _, n := range c.hosts {
		kerneltest.Within(t, 20*time.Second, func() error {
			to, err := os.Readlink(n.path("/opt/cni/bin/bridge"))
			if err == nil && to != "fairlead-cni" {
				err = fmt.Errorf("bridge leads to %s", to)
			}
			return err
		})
		want := 0
		for _, p := range pods {
			if p.node == n.name {
				want++
			}
		}
		// The DaemonSet records existing attachments after it has installed the plugins.
		kerneltest.Within(t, 20*time.Second, func() error {
			out := n.shell(t, "/opt/cni/bin/fairlead list")
			if strings.Count(out, kubeNetwork+" ") == want {
				return nil
			}
			seen := n.shell(t, "ls -l /var/lib/cni/results /run/netns")
			log, _ := c.kubectl("-n", "kube-system", "logs", "--tail=50", "-l", "app.kubernetes.io/name=fairlead")
			return fmt.Errorf("of %d pods with reference plugins on %s, fairlead list shows:\n%s\n%s\n%s", want, n.name, out, seen, log)
		})
	}
	summary := c.underLoad(t, pods, func() { // new pods use our plugins
		c.mustKubectl(t, "rollout", "restart", "deployment/web")
		c.waitForRollout(t)
	})
	c.uninstall(t)
	return fmt.Sprintf("rollout %v; %s while our plugins replaced the reference plugins", elapsed.Round(time.Second), summary)
}

// uninstall removes Fairlead. Then the reference plugins delete the pods that our plugins attached.
func (c *cluster) uninstall(t *testing.T) {
	t.Helper()
	c.mustKubectl(t, "delete", "-n", "kube-system", "daemonset", "fairlead", "--cascade=foreground")
	for _, n := range c.hosts {
		n.shell(t, "/opt/cni/bin/fairlead uninstall")
		if out := n.shell(t, "cd /opt/cni/bin; sha256sum *; ls -A | wc -l"); out != n.shell(t, "cat /run/before; wc -l </run/before") {
			t.Errorf("/opt/cni/bin on %s differs from before:\n%s", n.name, out)
		}
	}
	c.delete(t, "web.yaml")
	for _, n := range c.hosts {
		kerneltest.Within(t, 30*time.Second, func() error { // the reference plugins are slower
			if left := n.shell(t, "ls /run/netns"); left != "" {
				return fmt.Errorf("pods' namespaces remain on %s: %s", n.name, left)
			}
			return nil
		})
		n.shell(t, "fairlead gc --all")
	}
}
