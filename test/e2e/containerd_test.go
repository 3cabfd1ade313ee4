package e2e

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/built"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

const (
	containerdSocket = "/run/containerd/containerd.sock"
	containerdLog    = "/run/containerd.log"
)

// containerd is a containerd that the tests control through CRI, as kubelet does.
type containerd struct {
	programs
	bin         string // on the host: directory of containerd, its shim and ctr
	machineDir  string // on the machine: the directory mounted at bin, if no package installs it
	config      string
	newest      string // newest CNI version
	label       string
	callsStatus bool // whether it calls STATUS
	networks    int  // networks per pod

	criRuntime
}

// containerd16 returns the containerd of Debian 12.
func containerd16(p programs) *containerd {
	return &containerd{programs: p, bin: "/usr/bin", config: "testdata/containerd-1.6.toml", newest: "1.0.0", label: "containerd 1.6", networks: 1}
}

const containerd23Version = "2.3.7"

// containerd23 builds containerd 2.3 from the Go module proxy.
func containerd23(t *testing.T, p programs) *containerd {
	t.Helper()
	const module = "github.com/containerd/containerd/v2/"
	dir := ""
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "ctr"} {
		flags := "-s -w -X " + module + "version.Version=" + containerd23Version
		path, err := built.Program("containerd-"+containerd23Version, name, built.Install(module+"cmd/"+name+"@v"+containerd23Version, flags))
		if err != nil {
			t.Fatal(err)
		}
		dir = filepath.Dir(path)
	}
	return &containerd{programs: p, bin: "/opt/containerd/bin", machineDir: dir, config: "testdata/containerd-2.3.toml", newest: "1.1.0",
		label: "containerd 2.3", callsStatus: true, networks: 1}
}

// withNetworks returns the same client for a node that attaches each pod to n networks.
func (c *containerd) withNetworks(n int) client {
	other := *c
	other.networks = n
	return &other
}

func (c *containerd) name() string { return c.label }
func (c *containerd) spec() string { return c.newest }

func (c *containerd) binds() map[string]string {
	binds := map[string]string{c.plugin: "/opt/cni/bin", c.dir: "/mnt/e2e"}
	if c.machineDir != "" {
		binds[c.machineDir] = c.bin
	}
	return binds
}

func (c *containerd) unsupported(a feature) string {
	switch a {
	case callsStatus:
		if !c.callsStatus {
			return "it supports CNI 1.0.0 at most"
		}
	case callsGC:
		return "it never calls GC"
	}
	return c.criRuntime.unsupported(a)
}

func (c *containerd) start(t *testing.T, h *host) {
	t.Helper()
	c.host = h
	raw, err := os.ReadFile(c.config)
	if err != nil {
		t.Fatal(err)
	}
	h.write(t, "/etc/containerd/config.toml", os.Expand(string(raw), func(key string) string {
		return map[string]string{"IMAGE": imageName, "NETWORKS": strconv.Itoa(c.networks)}[key]
	}))
	c.launch(t)
	t.Cleanup(func() { c.conn.close() })
	if _, err := h.run(c.program("ctr"), "-n", "k8s.io", "images", "import", "/mnt/e2e/image.tar"); err != nil {
		t.Fatal(err)
	}
	h.write(t, "/run/resolv.conf", "")
	t.Cleanup(func() {
		if t.Failed() {
			log, _ := h.run("tail", "-n", "40", containerdLog)
			t.Logf("log of %s:\n%s", c.label, log)
		}
	})
}

func (c *containerd) program(name string) string { return filepath.Join(c.bin, name) }

func (c *containerd) relaunch(t *testing.T) {
	c.conn.close()
	c.launch(t)
}

// launch starts the daemon and waits until it answers and reports a network.
func (c *containerd) launch(t *testing.T) {
	c.pid = c.host.daemon(t, containerdLog, "env", "PATH="+c.bin+":"+os.Getenv("PATH"), c.program("containerd"), "--log-level", "info")
	c.conn = dialCRI(t, c.programs.cri, c.host.path(containerdSocket))
	kerneltest.Within(t, 20*time.Second, func() error {
		if _, err := os.Stat(c.host.path(containerdSocket)); err != nil {
			return err
		}
		return c.status()
	})
}
