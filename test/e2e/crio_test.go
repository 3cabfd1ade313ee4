package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/built"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/test/fromsource"
)

const (
	crioVersion = "1.34.0"
	crioModule  = "github.com/cri-o/cri-o@v" + crioVersion
	crioSocket  = "/run/crio/crio.sock"
	crioLog     = "/run/crio.log"
)

// crio is a CRI-O that the tests control through CRI.
type crio struct {
	programs
	criRuntime
	bin string // on the machine: directory of crio and pinns
}

// newCRIO builds CRI-O from the Go module proxy, and its program pinns with gcc.
func newCRIO(t *testing.T, p programs) *crio {
	t.Helper()
	const dir = "crio-" + crioVersion
	path, err := fromsource.Program(dir, "crio", crioModule, "./cmd/crio", "export GOFLAGS=\"$GOFLAGS -tags=containers_image_openpgp,exclude_graphdriver_btrfs\"")
	if err != nil {
		t.Fatal(err)
	}
	_, err = built.Program(dir, "pinns", func(temp string) *exec.Cmd {
		return exec.Command("sh", "-c", `gcc -O2 -std=c99 -o "$0/pinns" "$(go mod download -json `+crioModule+` | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')"/pinns/src/*.c`, temp)
	})
	if err != nil {
		t.Fatal(err)
	}
	return &crio{programs: p, bin: filepath.Dir(path)}
}

func (c *crio) name() string { return "CRI-O" }
func (c *crio) spec() string { return "1.1.0" }

func (c *crio) binds() map[string]string {
	return map[string]string{c.plugin: "/opt/cni/bin", c.dir: "/mnt/e2e", c.bin: "/opt/crio"}
}

func (c *crio) unsupported(a feature) string {
	switch a {
	case moreNetworks:
		return "it gives every pod the first network"
	case hostPorts:
		return "it maps host ports itself"
	case podBandwidth:
		return "the limit that it passes has a burst of 4 GiB"
	case callsStatus, callsGC:
		return "it calls " + string(a) + " only at its start, until the network is ready"
	}
	return c.criRuntime.unsupported(a)
}

// callsAtStart returns the operations that it calls when it starts.
func (c *crio) callsAtStart() []string { return []string{"STATUS", "GC"} }

// start loads the image with Podman, which has the same storage.
func (c *crio) start(t *testing.T, h *host) {
	t.Helper()
	c.host = h
	(&podman{}).start(t, h)
	raw, err := os.ReadFile("testdata/crio.conf")
	if err != nil {
		t.Fatal(err)
	}
	h.write(t, "/etc/crio/crio.conf", os.Expand(string(raw), func(string) string { return imageName }))
	h.write(t, "/run/resolv.conf", "")
	c.launch(t)
	t.Cleanup(func() { c.conn.close() })
	t.Cleanup(func() {
		if t.Failed() {
			log, _ := h.run("tail", "-n", "40", crioLog)
			t.Logf("log of CRI-O:\n%s", log)
		}
	})
}

func (c *crio) relaunch(t *testing.T) {
	c.conn.close()
	c.launch(t)
}

// launch starts the daemon and waits until it answers and reports a network.
func (c *crio) launch(t *testing.T) {
	c.pid = c.host.daemon(t, crioLog, "/opt/crio/crio", "--config", "/etc/crio/crio.conf", "--config-dir", "/etc/crio/none")
	c.conn = dialCRI(t, c.programs.cri, c.host.path(crioSocket))
	kerneltest.Within(t, 20*time.Second, func() error {
		if _, err := os.Stat(c.host.path(crioSocket)); err != nil {
			return err
		}
		return c.status()
	})
}
