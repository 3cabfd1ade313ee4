package e2e

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/built"
)

const nerdctlVersion = "1.7.7"

// nerdctl is the nerdctl command with containerd 1.6. It calls plugins itself, in an OCI hook.
type nerdctl struct {
	*containerd
	dir string // the machine's directory of nerdctl
}

// newNerdctl builds nerdctl at the version in ./nerdctl/go.mod.
func newNerdctl(t *testing.T, p programs) *nerdctl {
	t.Helper()
	const pkg = "github.com/containerd/nerdctl/"
	path, err := built.Program("nerdctl-"+nerdctlVersion, "nerdctl", func(temp string) *exec.Cmd {
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w -X "+pkg+"pkg/version.Version=v"+nerdctlVersion, "-o", temp, pkg+"cmd/nerdctl")
		cmd.Dir = "nerdctl"
		cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
		return cmd
	})
	if err != nil {
		t.Fatal(err)
	}
	return &nerdctl{containerd: containerd16(p), dir: filepath.Dir(path)}
}

func (n *nerdctl) name() string             { return "nerdctl" }
func (n *nerdctl) version() (string, error) { return nerdctlVersion, nil }

func (n *nerdctl) binds() map[string]string {
	binds := n.containerd.binds()
	binds[n.dir] = "/opt/nerdctl"
	return binds
}

func (n *nerdctl) unsupported(a feature) string {
	switch a {
	case podBandwidth:
		return "its command line has no option for " + string(a)
	case callsStatus, callsGC:
		return "it supports CNI 1.0.0 at most"
	}
	return ""
}

// unsupportedFused returns why nerdctl lacks a feature with fused lists, or "".
func (n *nerdctl) unsupportedFused(a feature) string {
	if a == fixedMAC {
		return "it rejects " + string(a) + " unless the first plugin of the list is bridge or macvlan"
	}
	return ""
}

func (n *nerdctl) command(argv ...string) (string, error) {
	return n.host.run(append([]string{"/opt/nerdctl/nerdctl", "--cni-path", "/opt/cni/bin", "--cni-netconfpath", confDir, "--cgroup-manager", "cgroupfs"}, argv...)...)
}

func (n *nerdctl) start(t *testing.T, h *host) {
	t.Helper()
	n.containerd.start(t, h)
	if _, err := n.command("load", "--input", "/mnt/e2e/image.tar"); err != nil {
		t.Fatal(err)
	}
}

func (n *nerdctl) kill() error {
	out, err := n.host.run("pgrep", "-x", "nerdctl")
	for _, pid := range strings.Fields(out) {
		_, _ = n.host.run("kill", "-9", pid) // may have ended already
	}
	return errors.Join(err, n.containerd.kill())
}

func (n *nerdctl) run(c pod) (*container, error) {
	argv := []string{"run", "--detach", "--pull", "never", "--name", c.name, "--hostname", c.name, "--cgroup-parent", n.host.cgroup()}
	for _, name := range c.networkNames() {
		argv = append(argv, "--network", name)
	}
	for _, m := range c.ports { // without an address, nerdctl publishes on IPv4 only
		for _, ip := range []string{"0.0.0.0", "::"} {
			argv = append(argv, "--publish", fmt.Sprintf("%s:%d:%d/%s", ip, m.host, m.pod, m.protocol))
		}
	}
	_, err := n.command(append(append(argv, runFlags(c)...), append([]string{imageName}, serveCommand()[1:]...)...)...)
	return &container{pod: c, id: c.name}, err
}

func (n *nerdctl) exec(c *container, argv ...string) (string, error) {
	return n.command(append([]string{"exec", c.id}, argv...)...)
}

func (n *nerdctl) restart(c *container) error {
	_, err := n.command("restart", "--time", "5", c.id)
	return err
}

func (n *nerdctl) remove(c *container) error {
	_, err := n.command("rm", "--force", c.id)
	return err
}

func (n *nerdctl) removeAll() error {
	out, err := n.command("ps", "--all", "--quiet", "--no-trunc")
	for _, id := range strings.Fields(out) {
		_, rm := n.command("rm", "--force", id)
		err = errors.Join(err, rm)
	}
	return err
}
