package e2e

import (
	"errors"
	"fmt"
	"strconv"
)

// criRuntime is a container runtime that the tests control through CRI, as kubelet does.
type criRuntime struct {
	host *host
	pid  string
	conn *criConn
}

func (c *criRuntime) version() (string, error) {
	var v struct {
		Version string `json:"runtime_version"`
	}
	err := c.conn.call("Version", object{}, &v)
	return v.Version, err
}

// unsupported returns what CRI itself lacks.
func (c *criRuntime) unsupported(a feature) string {
	switch a {
	case fixedIP, fixedMAC:
		return "CRI has no field for " + string(a)
	case chooseNetwork:
		return "CRI gives every pod the node's networks"
	}
	return ""
}

// status requests the runtime's status, as kubelet does every few seconds.
func (c *criRuntime) status() error {
	var s struct {
		Status struct {
			Conditions []struct {
				Type   string `json:"type"`
				Status bool   `json:"status"`
				Reason string `json:"message"`
			} `json:"conditions"`
		} `json:"status"`
	}
	if err := c.conn.call("Status", object{}, &s); err != nil {
		return err
	}
	for _, cond := range s.Status.Conditions {
		if ready := cond.Type == "RuntimeReady" || cond.Type == "NetworkReady"; ready && !cond.Status {
			return fmt.Errorf("%s is false: %s", cond.Type, cond.Reason)
		}
	}
	return nil
}

func (c *criRuntime) kill() error {
	_, err := c.host.run("kill", "-9", c.pid)
	return err
}

// ownProcesses gives each container a process namespace, as kubelet does by default.
func ownProcesses() object {
	const ofContainer = 1 // NamespaceMode
	return object{"namespace_options": object{"pid": ofContainer}}
}

// sandboxConfig returns the CRI configuration of a pod.
func (c *criRuntime) sandboxConfig(p pod) object {
	config := object{
		"metadata": object{"name": p.name, "namespace": "e2e", "uid": p.name}, "hostname": p.name, "log_directory": "/var/log/pods",
		"linux": object{"cgroup_parent": c.host.cgroup(), "security_context": ownProcesses()},
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

func (c *criRuntime) run(p pod) (*container, error) {
	created := &container{pod: p}
	var sandbox struct {
		ID string `json:"pod_sandbox_id"`
	}
	if err := c.conn.call("RunPodSandbox", object{"config": c.sandboxConfig(p)}, &sandbox); err != nil {
		return created, err
	}
	created.sandbox = sandbox.ID
	return created, c.create(created)
}

// create creates and starts the container in an existing sandbox.
func (c *criRuntime) create(ctr *container) error {
	var created struct {
		ID string `json:"container_id"`
	}
	err := c.conn.call("CreateContainer", object{"pod_sandbox_id": ctr.sandbox, "sandbox_config": c.sandboxConfig(ctr.pod), "config": object{
		"metadata": object{"name": "probe"}, "image": object{"image": imageName, "user_specified_image": imageName}, "command": serveCommand(), "log_path": ctr.name, "linux": object{"security_context": ownProcesses()},
	}}, &created)
	if err != nil {
		return err
	}
	ctr.id = created.ID
	return c.conn.call("StartContainer", object{"container_id": ctr.id}, nil)
}

func (c *criRuntime) exec(ctr *container, argv ...string) (string, error) {
	var done struct {
		Stdout []byte `json:"stdout"`
		Stderr []byte `json:"stderr"`
		Exit   int    `json:"exit_code"`
	}
	if err := c.conn.call("ExecSync", object{"container_id": ctr.id, "cmd": argv, "timeout": 60}, &done); err != nil {
		return "", err
	}
	if done.Exit != 0 {
		return string(done.Stdout), fmt.Errorf("%v in %s: exit code %d: %s", argv, ctr.name, done.Exit, done.Stderr)
	}
	return string(done.Stdout), nil
}

// restart replaces the container in the existing sandbox, as kubelet does.
func (c *criRuntime) restart(ctr *container) error {
	err := c.conn.call("StopContainer", object{"container_id": ctr.id, "timeout": 5}, nil)
	err = errors.Join(err, c.conn.call("RemoveContainer", object{"container_id": ctr.id}, nil))
	return errors.Join(err, c.create(ctr))
}

func (c *criRuntime) remove(ctr *container) error { return c.removeSandbox(ctr.sandbox) }

func (c *criRuntime) removeSandbox(id string) error {
	request := object{"pod_sandbox_id": id}
	return errors.Join(c.conn.call("StopPodSandbox", request, nil), c.conn.call("RemovePodSandbox", request, nil))
}

func (c *criRuntime) removeAll() error {
	var all struct {
		Items []struct {
			ID string `json:"id"`
		} `json:"items"`
	}
	err := c.conn.call("ListPodSandbox", object{}, &all)
	for _, s := range all.Items {
		err = errors.Join(err, c.removeSandbox(s.ID))
	}
	return err
}
