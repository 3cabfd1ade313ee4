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
)

// layOut puts what make image writes and the manifest where the page's commands
// look for them.
func layOut(t *testing.T, p programs) {
	t.Helper()
	folder := filepath.Join(p.dir, "contrib", "kubernetes")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := copyFile("../../contrib/kubernetes/fairlead.yaml", filepath.Join(folder, "fairlead.yaml")); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(p.dir, "bin")
	out, err := exec.Command("go", "run", "../../contrib/image", "-o", filepath.Join(bin, "fairlead-0.1.0-image.tar"),
		filepath.Join(bin, "fairlead"), filepath.Join(bin, "fairlead-cni")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// referencePlugins are those of the list, in one directory.
func referencePlugins(t *testing.T) (dir string) {
	t.Helper()
	for _, name := range []string{"bridge", "host-local", "portmap", "bandwidth", "firewall", "loopback"} {
		dir = filepath.Dir(reference.Plugin(t, name))
	}
	return dir
}

// daemonSet starts with nodes that run pods with the reference plugins, follows docs/tutorials/kubernetes.md, and goes
// back.
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
	pods := c.web(t, linger)
	t.Cleanup(func() {
		c.need(t, "-n", "kube-system", "delete", "daemonset", "fairlead", "--ignore-not-found", "--cascade=foreground")
	})
	start := time.Now()
	c.hosts[0].shell(t, "mkdir -p /usr/share/doc/fairlead; ln -sfn /mnt/e2e/contrib/kubernetes /usr/share/doc/fairlead/kubernetes; cd /mnt/e2e/bin\n"+
		strings.Join(tutorialCommands(t, "kubernetes"), ""))
	took := time.Since(start)
	for _, n := range c.hosts {
		eventually(t, 20*time.Second, func() error {
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
		eventually(t, 20*time.Second, func() error { // that is noted next
			out := n.shell(t, "/opt/cni/bin/fairlead list")
			if strings.Count(out, kubeNetwork+" ") == want {
				return nil
			}
			seen := n.shell(t, "ls -l /var/lib/cni/results /run/netns")
			log, _ := c.kubectl("-n", "kube-system", "logs", "--tail=50", "-l", "app.kubernetes.io/name=fairlead")
			return fmt.Errorf("of %d pods of the reference's on %s there are noted:\n%s\n%s\n%s", want, n.name, out, seen, log)
		})
	}
	said := c.underLoad(t, pods, func() { // pods of the reference's go, ours come
		c.need(t, "rollout", "restart", "deployment/web")
		c.rolledOut(t)
	})
	c.back(t)
	return fmt.Sprintf("rollout %v; %s while ours replaced the reference's pods", took.Round(time.Second), said)
}

// back removes Fairlead. The reference plugins delete the pods that our plugins attached.
func (c *cluster) back(t *testing.T) {
	t.Helper()
	c.need(t, "delete", "-n", "kube-system", "daemonset", "fairlead", "--cascade=foreground")
	for _, n := range c.hosts {
		n.shell(t, "/opt/cni/bin/fairlead uninstall")
		if out := n.shell(t, "cd /opt/cni/bin; sha256sum *; ls -A | wc -l"); out != n.shell(t, "cat /run/before; wc -l </run/before") {
			t.Errorf("%s has now\n%s", n.name, out)
		}
	}
	c.delete(t, "web.yaml")
	for _, n := range c.hosts {
		eventually(t, 30*time.Second, func() error { // the reference's plugins take their time
			if left := n.shell(t, "ls /run/netns"); left != "" {
				return fmt.Errorf("namespaces of pods are left on %s: %s", n.name, left)
			}
			return nil
		})
		n.shell(t, "fairlead gc --all")
	}
}
