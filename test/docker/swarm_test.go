package docker

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/lab"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// managed is the name in Docker of the plugin that Docker manages.
const managed = "fairlead:latest"

// TestSwarm runs a service on two hosts of a swarm: on an isolated network of the cluster, and on its default network
// with a published port. Docker manages the driver. dockerd and the driver are killed while tasks run.
func TestSwarm(t *testing.T) {
	c := newNetworks(t)
	manager, worker := swarm(t, c)
	both := []*machine{manager, worker}
	// Docker publishes ports on the network whose name comes first.
	for name, network := range map[string]string{"first": "default", "second": "blue"} {
		for _, m := range both {
			m.docker("network", "create", "--config-only", "--ipam-driver", "null", "--opt", "type=cluster", "--opt", "network="+network, name+"-here")
		}
		manager.docker("network", "create", "--driver", managed, "--scope", "swarm", "--attachable", "--config-from", name+"-here", name)
	}
	manager.docker("service", "create", "--detach", "--name", "web", "--network", "second", "--network", "first", "--publish", "mode=host,published=8090,target=80",
		"--endpoint-mode", "dnsrr", "--replicas", "2", "--replicas-max-per-node", "1", "--restart-delay", "0s", "--no-resolve-image", "box", "sh", "-c", serve)
	works := func(after string) {
		t.Helper()
		t.Log("after", after)
		var names, first, second []string
		for _, m := range both {
			name := m.task()
			names, first, second = append(names, name), append(first, m.address(name, "first")), append(second, m.address(name, "second"))
			m.ok(2)
		}
		for i, m := range both {
			for _, address := range slices.Concat(first, second) {
				m.in(names[i], "wget", "-q", "-O", "-", "http://"+address+"/")
			}
			kerneltest.Eventually(t, func() error {
				got := m.in(names[i], "nslookup", "web")
				if !strings.Contains(got, first[0]) || !strings.Contains(got, first[1]) {
					return fmt.Errorf("%s answers %s, want %v", m.Name, got, first)
				}
				return nil
			})
			get(t, both[1-i].Host, "http://"+m.V4.String()+":8090/", m.in(names[i], "cat", "/tmp/index.html"))
		}
		out := manager.docker("run", "--rm", "--network", "second", "box", "ping", "-c1", "-W2", second[1])
		if !strings.Contains(out, "1 packets received") {
			t.Errorf("a container that is no task: %s", out)
		}
	}
	works("the start")
	worker.killPlugin()
	works("kill -9 of the driver")
	worker.dockerd.Kill()
	worker.startDocker()
	works("kill -9 of dockerd")
	t.Log("and from outside Docker")
	node := c.Nodes[1]
	must(t, node.Configure("blue", `{"type": "fairlead-net", "network": "blue"}`))
	_, err := node.Attach(t.Context(), "pod", "blue")
	must(t, err)
	url := "http://" + manager.address(manager.task(), "second") + "/"
	_, err = node.Run(t.Context(), "ip", "netns", "exec", "pod", "curl", "--silent", "--fail", "--max-time", "5", url)
	must(t, err)
	_, err = node.Fairlead(t.Context(), "del", "blue", "pod")
	must(t, err)
	manager.docker("service", "rm", "web")
	for _, m := range both {
		kerneltest.Eventually(t, func() error {
			if out := m.docker("ps", "--all", "--quiet"); out != "" {
				return fmt.Errorf("containers on %s: %s", m.Name, out)
			}
			return nil
		})
	}
	manager.docker("network", "rm", "first", "second")
	for _, m := range both {
		m.notAttached()
	}
}

// swarm starts dockerd and the driver on the first two nodes, and joins them to a swarm.
func swarm(t *testing.T, c *lab.Cluster) (manager, worker *machine) {
	t.Helper()
	manager, worker = managedPlugin(t, c.Nodes[0].Host), managedPlugin(t, c.Nodes[1].Host)
	_, err := manager.try("network", "create", "--driver", managed, "--scope", "swarm", "x")
	if err == nil {
		t.Error("a host outside a swarm has a network of a swarm")
	}
	manager.docker("swarm", "init", "--advertise-addr", manager.V4.String())
	token := manager.docker("swarm", "join-token", "--quiet", "worker")
	worker.docker("swarm", "join", "--token", token, manager.V4.String()+":2377")
	return manager, worker
}

// managedPlugin starts dockerd on a host, and the driver as a plugin that Docker manages, as docs/docker.md describes.
func managedPlugin(t *testing.T, h *lab.Host) *machine {
	t.Helper()
	m := &machine{Host: h, t: t, dir: t.TempDir()}
	t.Cleanup(m.end)
	// Mounts of namespaces in /run reach the plugin, as on a host with systemd. A swarm asks a registry for each image,
	// and without a resolver it does not wait for the answer.
	for _, line := range []string{"mount --make-rshared /run", "mkdir -p /var/lib/cni", "mount --bind /dev/null /etc/resolv.conf"} {
		_, err := m.Run(t.Context(), strings.Fields(line)...)
		must(t, err)
	}
	m.startDocker()
	m.importImage()
	lib := filepath.Join(m.dir, "plugin", "rootfs", "usr", "lib")
	must(t, os.MkdirAll(lib, 0o755))
	for _, argv := range [][]string{{"cp", "-a", bin, filepath.Join(lib, "fairlead")}, {"cp", "../../contrib/docker/plugin/config.json", filepath.Join(m.dir, "plugin")}} {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	m.docker("plugin", "create", "fairlead", filepath.Join(m.dir, "plugin"))
	m.docker("plugin", "set", "fairlead", "args=--interval 1s --grace "+grace())
	m.docker("plugin", "enable", "fairlead")
	return m
}

// task returns the only task that runs on the host.
func (m *machine) task() (name string) {
	m.t.Helper()
	kerneltest.Eventually(m.t, func() error {
		names := strings.Fields(m.docker("ps", "--quiet"))
		if len(names) != 1 {
			return fmt.Errorf("containers on %s: %v", m.Name, names)
		}
		name = names[0]
		return nil
	})
	return name
}

func (m *machine) address(container, network string) string {
	m.t.Helper()
	return m.docker("inspect", "--format", `{{(index .NetworkSettings.Networks "`+network+`").IPAddress}}`, container)
}

// killPlugin kills the driver, which Docker starts again.
func (m *machine) killPlugin() {
	m.t.Helper()
	before := m.plugins()
	if len(before) != 1 {
		m.t.Fatalf("processes of the driver: %v", before)
	}
	must(m.t, syscall.Kill(before[0], syscall.SIGKILL))
	kerneltest.Eventually(m.t, func() error {
		if now := m.plugins(); len(now) != 1 || now[0] == before[0] {
			return fmt.Errorf("processes of the driver: %v", now)
		}
		return nil
	})
}

// plugins returns the processes of the driver on the host.
func (m *machine) plugins() (pids []int) {
	own, _ := os.Readlink(m.Netns())
	_ = killAll(func(pid int) bool {
		ns, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid))
		cmd, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if ns != "" && ns == own && strings.Contains(string(cmd), "\x00docker-plugin\x00") {
			pids = append(pids, pid)
		}
		return false
	})
	return pids
}

// notAttached waits until the driver has no endpoint and no network.
func (m *machine) notAttached() {
	m.t.Helper()
	kerneltest.Within(m.t, 20*time.Second, func() error {
		var left []string
		for _, pattern := range []string{"/run/fairlead/attach/*/*", "/run/fairlead/docker/*/*", "/var/lib/cni/fairlead/docker/networks/*"} {
			files, err := filepath.Glob(m.Path(pattern))
			must(m.t, err)
			left = append(left, files...)
		}
		if len(left) > 0 {
			return fmt.Errorf("left: %v", left)
		}
		return nil
	})
}
