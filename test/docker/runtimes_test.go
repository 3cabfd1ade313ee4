package docker

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/lab"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestOneNetworkOfThreeRuntimes runs a container of Docker on one host, and a pod under containerd and a container
// under Podman on another one, on one isolated network of the cluster. Each reaches the others, and no other network.
func TestOneNetworkOfThreeRuntimes(t *testing.T) {
	kerneltest.OptIn(t, optIn)
	kerneltest.Needs(t, "vxlan")
	build(t)
	c, err := lab.NewCluster(t.Context(), lab.Options{Nodes: []string{"a", "b"}, Members: 1, Network: `{"subnets": [{"cidr": "10.244.0.0/16"}], "nat": true}`, Bin: bin, Dir: t.TempDir()})
	must(t, err)
	t.Cleanup(c.Close)
	a, b := c.Nodes[0], c.Nodes[1]
	_, err = a.Cluster(t.Context(), "network", "create", "blue", "--isolated", "--subnet", "10.9.0.0/24", "--subnet", "fd09::/64")
	must(t, err)
	m := newMachine(t, a.Host)
	for _, n := range []string{"blue", "default"} {
		m.docker("network", "create", "--driver", "fairlead", "--ipam-driver", "null", "--opt", "type=cluster", "--opt", "network="+n, "--opt", "name="+n+"-docker", n+"-net")
	}
	m.run("web", "--network", "blue-net", "--hostname", "web")
	m.run("other", "--network", "default-net", "--hostname", "other", "--publish", "8090:80")
	m.run("both", "--network", "blue-net", "--hostname", "both")
	m.docker("network", "connect", "default-net", "both")
	m.ok(4)
	m.wget("both", "http://web/", "web") // Docker's own names
	m.wget("both", "http://other/", "other")
	get(t, b.Host, "http://"+a.V4.String()+":8090/", "other")
	m.docker("run", "--rm", "--network", "blue-net", "--publish", "8091:80", "box", "echo") // publishes nothing

	image := filepath.Join(m.dir, "image.tar")
	m.docker("import", "--change", `CMD ["/bin/sleep", "100000"]`, filepath.Join(m.dir, "box.tar"), "localhost/box:pod")
	m.docker("save", "--output", image, "localhost/box:pod")
	must(t, b.Configure("blue", `{"type": "fairlead-net", "network": "blue"}`))
	r := &runtimes{Node: b, t: t, dir: t.TempDir()}
	t.Cleanup(r.end)
	r.podman(image)
	r.pod(image)

	web := endpointsOf(t, a, "blue-docker")
	others := endpointsOf(t, b, "blue")
	if len(web) != 2 || len(others) != 2 {
		t.Fatalf("%d endpoints of Docker and %d others, want 2 and 2", len(web), len(others))
	}
	reach := func(from *lab.Node, e listed, to []listed) {
		t.Helper()
		for _, x := range to {
			for _, address := range x.Addresses {
				address, _, _ = strings.Cut(address, "/")
				kerneltest.Eventually(t, func() error {
					_, err := from.Run(t.Context(), "nsenter", "--net="+e.Netns, "ping", "-c1", "-W2", address)
					return err
				})
			}
		}
	}
	for _, e := range web {
		reach(a, e, others)
	}
	for _, e := range others {
		reach(b, e, append(web, others...))
	}
	isolated, _, _ := strings.Cut(web[0].Addresses[0], "/")
	m.fails("other", "ping", "-c1", "-W1", isolated)
	if out, err := a.Cluster(t.Context(), "map"); err != nil || !strings.Contains(out, isolated) {
		t.Errorf("map lacks %s: %v\n%s", isolated, err, out)
	}
	m.remove()
	if left := append(endpointsOf(t, a, "blue-docker"), endpointsOf(t, a, "default-docker")...); len(left) > 0 {
		t.Errorf("left: %+v", left)
	}
	kerneltest.Eventually(t, func() error {
		out, err := a.IP(t.Context(), "-n fairlead-blue -o link show type veth")
		if err == nil && out != "" {
			err = fmt.Errorf("links left in the network's namespace: %s", out)
		}
		return err
	})
}

// listed is an attachment as list shows it.
type listed struct {
	Network, Container, Netns string
	Addresses                 []string
}

func endpointsOf(t *testing.T, n *lab.Node, network string) (out []listed) {
	t.Helper()
	text, err := n.Fairlead(t.Context(), "list", "--network", network, "--json")
	must(t, err)
	must(t, json.Unmarshal([]byte(text), &out))
	return out
}

// runtimes are containerd and Podman on one node.
type runtimes struct {
	*lab.Node
	t      *testing.T
	dir    string
	remove []func()
}

func (r *runtimes) do(argv ...string) string {
	r.t.Helper()
	out, err := r.Run(context.WithoutCancel(r.t.Context()), argv...) // also at the test's end
	must(r.t, err)
	return strings.TrimSpace(out)
}

func (r *runtimes) end() {
	for _, f := range r.remove {
		f()
	}
	kerneltest.Eventually(r.t, func() error { return removeCgroups(r.Name) })
}

// podman runs a container under Podman with its CNI backend.
func (r *runtimes) podman(image string) {
	r.t.Helper()
	conf := filepath.Join(r.dir, "containers.conf")
	must(r.t, os.WriteFile(conf, []byte(`[containers]
oom_score_adj = 0
default_ulimits = ["nofile=20000:20000", "nproc=32768:32768"]
[network]
network_backend = "cni"
cni_plugin_dirs = ["/run/bin"]
network_config_dir = "`+lab.ConfDir+`"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
`), 0o644))
	policy := filepath.Join(r.dir, "policy.json")
	must(r.t, os.WriteFile(policy, []byte(`{"default": [{"type": "insecureAcceptAnything"}]}`), 0o644))
	storage := filepath.Join(r.dir, "storage.conf")
	must(r.t, os.WriteFile(storage, []byte("[storage]\ndriver = \"vfs\"\nrunroot = \"/run/pods\"\ngraphroot = \"/var/lib/pods\"\n"), 0o644))
	podman := []string{"env", "CONTAINERS_CONF=" + conf, "CONTAINERS_STORAGE_CONF=" + storage, "podman"}
	r.do(append(podman, "load", "--signature-policy", policy, "--input", image)...)
	r.do(append(podman, "run", "--pull", "never", "--detach", "--name", "p", "--network", "blue", "--cgroup-parent", cgroupOf(r.Name), "localhost/box:pod")...)
	r.remove = append(r.remove, func() { r.do(append(podman, "rm", "--force", "--time", "0", "p")...) })
}

// pod runs a pod under containerd, by CRI.
func (r *runtimes) pod(image string) {
	r.t.Helper()
	conf := filepath.Join(r.dir, "config.toml")
	must(r.t, os.WriteFile(conf, []byte(`version = 2
root = "/var/lib/cd"
state = "/run/cd"
[grpc]
address = "/run/cd.sock"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "localhost/box:pod"
disable_apparmor = true
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "native"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/run/bin"
conf_dir = "/run/net.d-pods"
`), 0o644))
	must(r.t, os.MkdirAll(r.Path("/run/net.d-pods"), 0o755))
	r.do("cp", lab.ConfDir+"/blue.conflist", "/run/net.d-pods/")
	_, err := r.Host.Start(filepath.Join(r.dir, "containerd.log"), nil, "containerd", "--config", conf)
	must(r.t, err)
	kerneltest.Eventually(r.t, func() error {
		_, err := r.Run(r.t.Context(), "ctr", "--address", "/run/cd.sock", "-n", "k8s.io", "images", "import", "--snapshotter", "native", image)
		return err
	})
	program := filepath.Join(r.dir, "cri")
	build := exec.Command("go", "build", "-o", program, ".")
	build.Dir = "../e2e/cri"
	if out, err := build.CombinedOutput(); err != nil {
		r.t.Fatalf("%v: %s", err, out)
	}
	config := `{"metadata":{"name":"pod","namespace":"x","uid":"pod"},"hostname":"pod","log_directory":"/run/logs","linux":{"cgroup_parent":"` + cgroupOf(r.Name) + `"}}`
	var id string
	kerneltest.Eventually(r.t, func() (err error) {
		id, err = r.cri(program, `{"ID":1,"Method":"RunPodSandbox","Request":{"config":`+config+`}}`)
		return err
	})
	r.remove = append(r.remove, func() {
		_, err := r.cri(program, `{"ID":1,"Method":"StopPodSandbox","Request":{"pod_sandbox_id":"`+id+`"}}`)
		if err == nil {
			_, err = r.cri(program, `{"ID":1,"Method":"RemovePodSandbox","Request":{"pod_sandbox_id":"`+id+`"}}`)
		}
		if err != nil {
			r.t.Error(err)
		}
	})
}

// cri calls one method of containerd, and returns the ID of the pod in its answer.
func (r *runtimes) cri(program, call string) (string, error) {
	cmd := exec.Command(program, "unix://"+r.Path("/run/cd.sock"))
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return "", err
	}
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return "", err
	}
	_, err = stdin.Write([]byte(call + "\n"))
	out, err2 := bufio.NewReader(stdout).ReadBytes('\n') // the program ends with its input
	if err := errors.Join(err, err2, stdin.Close(), cmd.Wait()); err != nil {
		return "", err
	}
	var answer struct {
		Error    string
		Response struct {
			ID string `json:"pod_sandbox_id"`
		}
	}
	if err := json.Unmarshal(out, &answer); err != nil || answer.Error != "" {
		return "", fmt.Errorf("%s: %s %w", call, answer.Error, err)
	}
	return answer.Response.ID, nil
}
