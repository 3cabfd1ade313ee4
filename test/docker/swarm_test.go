package docker

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/lab"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// driver is the name of the plugin that Docker manages.
const driver = "fairlead:latest"

// TestSwarm runs a service on two hosts of a swarm, on an isolated network of the cluster.
func TestSwarm(t *testing.T) {
	kerneltest.OptIn(t, optIn)
	kerneltest.Needs(t, "vxlan")
	build(t)
	c, err := lab.NewCluster(t.Context(), lab.Options{Nodes: []string{"a", "b"}, Members: 1, Network: `{"subnets": [{"cidr": "10.244.0.0/16"}], "nat": true}`, Bin: bin, Dir: t.TempDir()})
	must(t, err)
	t.Cleanup(c.Close)
	_, err = c.Nodes[0].Cluster(t.Context(), "network", "create", "blue", "--isolated", "--subnet", "10.9.0.0/24")
	must(t, err)
	var all []*machine
	for _, n := range c.Nodes {
		all = append(all, managedPlugin(t, n.Host))
	}
	manager, worker := all[0], all[1]
	manager.docker("swarm", "init", "--advertise-addr", manager.V4.String())
	worker.docker("swarm", "join", "--token", manager.docker("swarm", "join-token", "--quiet", "worker"), manager.V4.String()+":2377")
	for _, m := range all {
		m.docker("network", "create", "--config-only", "--ipam-driver", "null", "--opt", "type=cluster", "--opt", "network=blue", "blue-here")
	}
	manager.docker("network", "create", "--driver", driver, "--scope", "swarm", "--config-from", "blue-here", "--attachable", "blue")
	manager.docker("service", "create", "--detach", "--name", "web", "--network", "blue", "--endpoint-mode", "dnsrr", "--replicas", "2", "--replicas-max-per-node", "1",
		"--no-resolve-image", "box", "sh", "-c", serve)
	kerneltest.Eventually(t, func() error {
		out := manager.docker("service", "ps", "--format", "{{.Node}} {{.CurrentState}} {{.Error}}", "web")
		if strings.Count(out, " Running") != 2 {
			return fmt.Errorf("tasks: %s", out)
		}
		return nil
	})
	t.Log(manager.fairlead("list"), worker.fairlead("list"))
	name := manager.docker("ps", "--quiet")
	t.Log(manager.in(name, "nslookup", "web"), manager.in(name, "nslookup", "tasks.web"))
}

// managedPlugin starts dockerd on a host, and the driver as a plugin that Docker manages.
func managedPlugin(t *testing.T, h *lab.Host) *machine {
	t.Helper()
	m := &machine{Host: h, t: t, dir: t.TempDir()}
	t.Cleanup(m.end)
	for _, argv := range [][]string{{"mount", "--make-rshared", "/"}, {"mount", "--make-rshared", "/run"}, {"mkdir", "-p", "/var/lib/cni"}} {
		_, err := m.Run(t.Context(), argv...)
		must(t, err)
	}
	m.startDocker()
	m.importImage()
	raw, err := os.ReadFile("../../contrib/docker/plugin/config.json")
	must(t, err)
	must(t, os.WriteFile(filepath.Join(m.dir, "config.json"), raw, 0o644))
	lib := filepath.Join(m.dir, "rootfs", "usr", "lib")
	must(t, os.MkdirAll(lib, 0o755))
	out, err := exec.Command("cp", "-a", bin, filepath.Join(lib, "fairlead")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	m.docker("plugin", "create", "fairlead", m.dir)
	m.docker("plugin", "enable", "fairlead")
	return m
}
