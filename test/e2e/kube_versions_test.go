package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// nextVersion is a release after the one under test. It has the same code.
const nextVersion = "0.2.0"

// buildNext builds the next version in the directory "next" of the programs, and loads its image on all nodes.
func (c *cluster) buildNext(t *testing.T) {
	t.Helper()
	dir := filepath.Join(c.dir, "next")
	err := os.MkdirAll(dir, 0o755)
	for _, name := range []string{"fairlead", "fairlead-cni"} {
		err = errors.Join(err, compile("../..", filepath.Join(dir, name), "./cmd/"+name, "-X github.com/fairlead/fairlead/cni.version="+nextVersion))
	}
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("go", "run", "../../contrib/image", "-name", "docker.io/fairlead/fairlead:"+nextVersion, "-o", filepath.Join(dir, "image.tar"),
		filepath.Join(dir, "fairlead"), filepath.Join(dir, "fairlead-cni")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, n := range c.hosts {
		n.shell(t, "ctr -n k8s.io images import /mnt/e2e/next/image.tar")
	}
}

// waitForVersion waits until the agents of all nodes have a version, or another one, and each node's plugins have, too.
func (c *cluster) waitForVersion(t *testing.T, next bool) {
	t.Helper()
	for _, n := range c.hosts {
		kerneltest.Within(t, time.Minute, func() error {
			published, err := c.kubectl("get", "node", n.name, "-o", `jsonpath={.metadata.annotations.fairlead\.io/node}`)
			if err == nil && strings.Contains(published, "fairlead."+nextVersion) != next {
				err = errors.New(n.name + " published " + published)
			}
			return err
		})
		if same := n.shell(t, "cmp -s /opt/cni/bin/fairlead-cni /mnt/e2e/next/fairlead-cni && echo yes || echo no"); strings.Contains(same, "yes") != next {
			t.Errorf("the plugins of %s are those of the next version: %s, want %v", n.name, same, next)
		}
	}
	c.waitForAgents(t, len(c.hosts)-1)
}

// upgradeAndRollBack installs the next version and goes back to the former one, by an undo of the DaemonSet and by the
// former version's command. Each version's plugins delete pods that the other one's attached.
func upgradeAndRollBack(t *testing.T, c *cluster) string {
	c.buildNext(t)
	t.Cleanup(func() { c.applyAgents(t); c.waitForAgents(t, len(c.hosts)-1) })
	install := func(program string) {
		t.Helper()
		if out, err := c.control.run(program, "kubernetes", "install", "--pod-cidr="+podRange, "--no-check", "--timeout=110s", "--kubeconfig="+kubeConfig); err != nil {
			t.Fatal(err, out)
		}
	}
	pods := c.startWeb(t, lingerSeconds)
	summary := c.underLoad(t, pods, func() {
		install("/mnt/e2e/next/fairlead")
		c.waitForVersion(t, true)
		c.replaceWeb(t, c.pods(t, "web"))
		c.agents(t, "rollout", "undo", "daemonset/"+c.agentName())
		c.agents(t, "rollout", "status", "daemonset/"+c.agentName(), "--timeout=110s")
		c.waitForVersion(t, false)
		c.replaceWeb(t, c.pods(t, "web"))
		install("/mnt/e2e/next/fairlead")
		c.waitForVersion(t, true)
		install("/mnt/e2e/fairlead")
		c.waitForVersion(t, false)
	})
	c.checkHealthy(t)
	return fmt.Sprintf("twice to the next version and back; %s", summary)
}
