package e2e

import (
	"errors"
	"fmt"
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

	host *host
	pid  string
	cri  *criConn
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

func (c *containerd) version() (string, error) {
	var v struct {
		Version string `json:"runtime_version"`
	}
	err := c.cri.call("Version", object{}, &v)
	return v.Version, err
}

func (c *containerd) binds() map[string]string {
	binds := map[string]string{c.plugin: "/opt/cni/bin", c.dir: "/mnt/e2e"}
	if c.machineDir != "" {
		binds[c.machineDir] = c.bin
	}
	return binds
}

func (c *containerd) unsupported(a feature) string {
	switch a {
	case fixedIP, fixedMAC:
		return "CRI has no field for " + string(a)
	case chooseNetwork:
		return "CRI gives every pod the node's networks"
	case callsStatus:
		if !c.callsStatus {
			return "it supports CNI 1.0.0 at most"
		}
	case callsGC:
		return "it never calls GC"
	}
	return ""
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
	t.Cleanup(func() { c.cri.close() })
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
	c.cri.close()
	c.launch(t)
}

// launch starts the daemon and waits until it answers and reports a network.
func (c *containerd) launch(t *testing.T) {
	c.pid = c.host.daemon(t, containerdLog, "env", "PATH="+c.bin+":"+os.Getenv("PATH"), c.program("containerd"), "--log-level", "info")
	c.cri = dialCRI(t, c.programs.cri, c.host.path(containerdSocket))
	kerneltest.Within(t, 20*time.Second, func() error {
		if _, err := os.Stat(c.host.path(containerdSocket)); err != nil {
			return err
		}
		return c.status()
	})
}

// status requests the runtime's status, as kubelet does every few seconds.
func (c *containerd) status() error {
	var s struct {
		Status struct {
			Conditions []struct {
				Type   string `json:"type"`
				Status bool   `json:"status"`
				Reason string `json:"message"`
			} `json:"conditions"`
		} `json:"status"`
	}
	if err := c.cri.call("Status", object{}, &s); err != nil {
		return err
	}
	for _, cond := range s.Status.Conditions {
		if ready := cond.Type == "RuntimeReady" || cond.Type == "NetworkReady"; ready && !cond.Status {
			return fmt.Errorf("%s is false: %s", cond.Type, cond.Reason)
		}
	}
	return nil
}

func (c *containerd) kill() error {
	_, err := c.host.run("kill", "-9", c.pid)
	return err
}

// sandboxConfig returns the CRI configuration of a pod.
func (c *containerd) sandboxConfig(p pod) object {
	config := object{
		"metadata": object{"name": p.name, "namespace": "e2e", "uid": p.name}, "hostname": p.name, "log_directory": "/var/log/pods",
		"linux": object{"cgroup_parent": c.host.cgroup()},
	}
	var ports []object
	for _, m := range p.ports {
		ports = append(ports, object{"protocol": map[string]int{"tcp": 0, "udp": 1}[m.protocol], "container_port": m.pod, "host_port": m.host})
	}
	config["port_mappings"] = ports
	if p.rate != 0 {
		rate := strconv.Itoa(p.rate)
		config["annotations"] = object{"kubernetes.io/ingress-bandwidth": rate, "kubernetes.io/egress-bandwidth": rate}
	}
	return config
}

func (c *containerd) run(p pod) (*container, error) {
	created := &container{pod: p}
	var sandbox struct {
		ID string `json:"pod_sandbox_id"`
	}
	if err := c.cri.call("RunPodSandbox", object{"config": c.sandboxConfig(p)}, &sandbox); err != nil {
		return created, err
	}
	created.sandbox = sandbox.ID
	return created, c.create(created)
}

// create creates and starts the container in an existing sandbox.
func (c *containerd) create(ctr *container) error {
	var created struct {
		ID string `json:"container_id"`
	}
	err := c.cri.call("CreateContainer", object{"pod_sandbox_id": ctr.sandbox, "sandbox_config": c.sandboxConfig(ctr.pod), "config": object{
		"metadata": object{"name": "probe"}, "image": object{"image": imageName}, "command": serveCommand(), "log_path": ctr.name, "linux": object{},
	}}, &created)
	if err != nil {
		return err
	}
	ctr.id = created.ID
	return c.cri.call("StartContainer", object{"container_id": ctr.id}, nil)
}

func (c *containerd) exec(ctr *container, argv ...string) (string, error) {
	var done struct {
		Stdout []byte `json:"stdout"`
		Stderr []byte `json:"stderr"`
		Exit   int    `json:"exit_code"`
	}
	if err := c.cri.call("ExecSync", object{"container_id": ctr.id, "cmd": argv, "timeout": 60}, &done); err != nil {
		return "", err
	}
	if done.Exit != 0 {
		return string(done.Stdout), fmt.Errorf("%v in %s: exit code %d: %s", argv, ctr.name, done.Exit, done.Stderr)
	}
	return string(done.Stdout), nil
}

// restart replaces the container in the existing sandbox, as kubelet does.
func (c *containerd) restart(ctr *container) error {
	err := c.cri.call("StopContainer", object{"container_id": ctr.id, "timeout": 5}, nil)
	err = errors.Join(err, c.cri.call("RemoveContainer", object{"container_id": ctr.id}, nil))
	return errors.Join(err, c.create(ctr))
}

func (c *containerd) remove(ctr *container) error { return c.removeSandbox(ctr.sandbox) }

func (c *containerd) removeSandbox(id string) error {
	request := object{"pod_sandbox_id": id}
	return errors.Join(c.cri.call("StopPodSandbox", request, nil), c.cri.call("RemovePodSandbox", request, nil))
}

func (c *containerd) removeAll() error {
	var all struct {
		Items []struct {
			ID string `json:"id"`
		} `json:"items"`
	}
	err := c.cri.call("ListPodSandbox", object{}, &all)
	for _, s := range all.Items {
		err = errors.Join(err, c.removeSandbox(s.ID))
	}
	return err
}
