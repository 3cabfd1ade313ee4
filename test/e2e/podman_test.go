package e2e

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

// podman is the Podman of Debian 12 with its CNI backend. It has no daemon.
type podman struct {
	programs
	host *host
}

func (p *podman) name() string { return "Podman" }
func (p *podman) spec() string { return "1.0.0" }

func (p *podman) version() (string, error) {
	out, err := p.host.run("podman", "version", "--format", "{{.Client.Version}}")
	return strings.TrimSpace(out), err
}

func (p *podman) binds() map[string]string {
	return map[string]string{p.plugin: "/opt/cni/bin", p.dir: "/mnt/e2e"}
}

func (p *podman) unsupported(a feature) string {
	switch a {
	case podBandwidth:
		return "its command line has no option for " + string(a)
	case callsStatus, callsGC:
		return "it supports CNI 1.0.0 at most"
	}
	return ""
}

func (p *podman) start(t *testing.T, h *host) {
	t.Helper()
	p.host = h
	for _, file := range []string{"containers.conf", "storage.conf", "registries.conf", "policy.json"} {
		raw, err := os.ReadFile("testdata/podman/" + file)
		if err != nil {
			t.Fatal(err)
		}
		h.write(t, "/etc/containers/"+file, string(raw))
	}
	if _, err := h.run("podman", "load", "--input", "/mnt/e2e/image.tar"); err != nil {
		t.Fatal(err)
	}
}

// kill kills every podman process, but not conmon, which monitors the containers.
func (p *podman) kill() error {
	out, err := p.host.run("pgrep", "-x", "podman")
	for _, pid := range strings.Fields(out) {
		_, _ = p.host.run("kill", "-9", pid) // may have ended already
	}
	return err
}

func (p *podman) relaunch(*testing.T) {}

func (p *podman) run(c pod) (*container, error) {
	argv := []string{"podman", "run", "--detach", "--name", c.name, "--hostname", c.name, "--cgroup-parent", p.host.cgroup()}
	for i, n := range c.networkNames() {
		// Without a name, Podman numbers the interfaces in random order.
		argv = append(argv, "--network", fmt.Sprintf("%s:interface_name=eth%d", n, i))
	}
	for _, m := range c.ports {
		argv = append(argv, "--publish", fmt.Sprintf("%d:%d/%s", m.host, m.pod, m.protocol))
	}
	_, err := p.host.run(append(append(argv, runFlags(c)...), append([]string{imageName}, serveCommand()[1:]...)...)...)
	return &container{pod: c, id: c.name}, err
}

// runFlags returns the flags that podman and nerdctl share.
func runFlags(c pod) (argv []string) {
	if c.ip != "" {
		argv = append(argv, "--ip", c.ip)
	}
	if c.mac != "" {
		argv = append(argv, "--mac-address", c.mac)
	}
	return argv
}

func (p *podman) exec(c *container, argv ...string) (string, error) {
	return p.host.run(append([]string{"podman", "exec", c.id}, argv...)...)
}

func (p *podman) restart(c *container) error {
	_, err := p.host.run("podman", "restart", "--time", "5", c.id)
	return err
}

func (p *podman) remove(c *container) error { return p.rm("--time", "5", c.id) }

func (p *podman) removeAll() error { return p.rm("--all", "--time", "0") }

// rm removes containers. It tries twice: the first attempt fails on containers that a killed podman created partially. On a
// busy machine, a container may also end while podman kills it. Then podman fails with "container state improper: stopped",
// and has removed nothing.
func (p *podman) rm(args ...string) error {
	var errs []error
	for range 2 {
		_, err := p.host.run(append([]string{"podman", "rm", "--force"}, args...)...)
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
