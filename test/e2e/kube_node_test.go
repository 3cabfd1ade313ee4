package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// kubeNode is a host with containerd, kubelet and kube-proxy.
type kubeNode struct {
	*host
	cluster             *cluster
	name, ip, pods      string // pods: the address range of its pods
	containerd, kubelet string // process IDs in the host
	baseline            []string
	cgroups             []string // names of the containers' cgroups that remain at the end
}

func (c *cluster) newNode(t *testing.T, i int) *kubeNode {
	t.Helper()
	n := &kubeNode{cluster: c, name: fmt.Sprintf("n%d", i), ip: fmt.Sprintf("198.51.100.%d", 10+i)}
	removeParents(t)
	t.Cleanup(func() { n.removeCgroups(t) }) // runs after the host has ended
	n.host = c.kubeHost(t, n.name, n.ip, map[string]string{c.runtime.machineDir: c.runtime.bin, c.plugin: "/mnt/cni", c.reference: "/mnt/reference"})
	t.Cleanup(func() { n.cgroups = n.containers() })
	n.shell(t, nodeSetup)
	raw, err := os.ReadFile(c.runtime.config)
	if err != nil {
		t.Fatal(err)
	}
	n.write(t, "/etc/containerd/config.toml", os.Expand(string(raw), func(key string) string {
		return map[string]string{"IMAGE": imageName, "NETWORKS": "1"}[key]
	}))
	n.write(t, "/run/kubelet.yaml", fill(t, "kubelet.yaml", map[string]string{"DNS": c.dns()}))
	n.write(t, "/run/proxy.yaml", fill(t, "proxy.yaml", map[string]string{"NODE": n.name, "MODE": c.mode, "PODS": c.family.pick(podRange, podRange6)}))
	n.startContainerd(t)
	n.startKubelet(t)
	n.logChanges(t)
	// kube-proxy ends if its node gets another address. In a cluster, the kubelet starts it again.
	c.daemon(t, n.host, "sh", "-c", "while :; do "+kubernetesBin+"/kube-proxy --config=/run/proxy.yaml -v=2; sleep 1; done")
	return n
}

// nodeSetup turns a host into a Kubernetes node: shared mounts for volumes, its own plugin directory, forwarding, and
// bridged packets through iptables for kube-proxy. Files hide the kernel settings that kubelet would change, because
// these belong to the machine.
const nodeSetup = `mount --make-rshared /
rm -rf /opt/cni /etc/cni && mkdir -p /opt/cni /etc/cni/net.d && cp -a /mnt/cni /opt/cni/bin
sysctl -qw net.ipv4.ip_forward=1
[ ! -e /proc/sys/net/bridge/bridge-nf-call-iptables ] || sysctl -qw net.bridge.bridge-nf-call-iptables=1
mkdir /run/kernel
for s in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
	f=/run/kernel/$(echo ${s%=*} | tr / .)
	echo ${s#*=} > $f
	mount --bind $f /proc/sys/${s%=*}
done`

// shell runs a script on the host, and fails the test if the script fails.
func (h *host) shell(t *testing.T, script string) string {
	t.Helper()
	out, err := h.run("bash", "-euo", "pipefail", "-c", "export PATH="+h.searchPath()+" KUBECONFIG="+kubeConfig+"\n"+script)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// searchPath is the PATH of the host's shell.
func (h *host) searchPath() string {
	return "/mnt/e2e/bin:/opt/containerd/bin:/opt/nerdctl:" + kubernetesBin + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
}

func (n *kubeNode) startContainerd(t *testing.T) {
	t.Helper()
	bin := n.cluster.runtime.bin
	n.containerd = n.cluster.daemon(t, n.host, "env", "PATH="+n.searchPath(), bin+"/containerd", "--log-level", "info")
	kerneltest.Within(t, 30*time.Second, func() error { _, err := n.run(bin+"/ctr", "version"); return err })
	if _, err := n.run(bin+"/ctr", "-n", "k8s.io", "images", "import", "/mnt/e2e/image.tar"); err != nil {
		t.Fatal(err)
	}
	n.awaitCRI(t)
}

// awaitCRI waits until containerd has restored its pods and answers CRI calls. Without an answer kubelet exits; in a
// real node systemd would restart it.
func (n *kubeNode) awaitCRI(t *testing.T) {
	t.Helper()
	conn := dialCRI(t, n.cluster.programs.cri, n.path(containerdSocket))
	defer conn.close()
	kerneltest.Within(t, time.Minute, func() error { return conn.call("Status", object{}, nil) })
}

func (n *kubeNode) startKubelet(t *testing.T) {
	t.Helper()
	n.kubelet = n.cluster.daemon(t, n.host, kubernetesBin+"/kubelet", "--config=/run/kubelet.yaml", "--kubeconfig="+kubeConfig,
		"--hostname-override="+n.name, "--node-ip="+n.cluster.family.pick(n.ip, sixOf(n.ip)))
}

// configureNetwork writes the node's network list with the node's pod range. With our agent, the agent writes the list.
func (n *kubeNode) configureNetwork(t *testing.T) {
	t.Helper()
	if n.cluster.network != staticRoutes {
		n.pods = podRange
		return
	}
	kerneltest.Within(t, time.Minute, func() (err error) {
		n.pods, err = n.cluster.kubectl("get", "node", n.name, "-o", "jsonpath={.spec.podCIDR}")
		if err == nil && n.pods == "" {
			err = errors.New(n.name + " has no pod range yet")
		}
		return err
	})
	list := object{"cniVersion": "1.1.0", "name": kubeNetwork, "plugins": []object{
		{"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
			"ipam": object{"type": "host-local", "ranges": []any{[]any{object{"subnet": n.pods}}}, "routes": []any{object{"dst": "0.0.0.0/0"}}}},
		{"type": "portmap", "capabilities": object{"portMappings": true}},
		{"type": "bandwidth", "capabilities": object{"bandwidth": true}},
		{"type": "firewall"},
	}}
	raw, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	n.write(t, confDir+"/10-"+kubeNetwork+".conflist", string(raw))
}

const kubeNetwork = "pods"

// state returns all state of the node that pods change, except kube-proxy's rules.
func (n *kubeNode) state(t *testing.T) (lines []string) {
	t.Helper()
	dump, _, _ := strings.Cut(kerneltest.Dump(t, n.netns()), "# nft list ruleset")
	table, _ := n.run("nft", "list", "table", "inet", "fairlead") // the table does not exist before the first pod
	lines = append(dumpLines(dump), strings.Split(table, "\n")...)
	lines = append(lines, n.files(t)...)
	ps, err := n.run("ps", "-e", "-o", "comm=")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range regexp.MustCompile(`(?m)^(probe|runc|containerd-shim|fairlead).*$`).FindAllString(ps, -1) {
		lines = append(lines, "process "+p)
	}
	for i, l := range lines {
		lines[i] = strings.TrimRight(l, " ")
	}
	slices.Sort(lines)
	return lines
}

// containers returns the IDs of the containers that containerd still knows. Their cgroups have the same names, and have
// no common parent here.
func (n *kubeNode) containers() (ids []string) {
	paths, _ := filepath.Glob(n.path("/run/containerd/io.containerd.runtime.v2.task/k8s.io/*"))
	for _, p := range paths {
		ids = append(ids, filepath.Base(p))
	}
	return ids
}

func (n *kubeNode) removeCgroups(t *testing.T) {
	for _, id := range n.cgroups {
		for _, pattern := range []string{"/sys/fs/cgroup/*/" + id, "/sys/fs/cgroup/*/k8s.io/" + id, "/sys/fs/cgroup/" + id} {
			left, _ := filepath.Glob(pattern)
			for _, dir := range left {
				kerneltest.Within(t, 5*time.Second, func() error { return removeTree(dir) })
			}
		}
	}
}
