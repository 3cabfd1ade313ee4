package e2e

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/etcdtest"
	"github.com/fairlead/fairlead/internal/kubetest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

const (
	oldestKubernetes = "1.33.13" // kubernetes/go.mod pins it
	kubernetesBin    = "/opt/kubernetes/bin"
	etcdBin          = "/opt/etcd"
	podRange         = "10.210.0.0/16" // each node gets a /24
	podRange6        = "fd00:210::/48" // each node gets a /64
	serviceRange     = "10.96.0.0/16"
	serviceRange6    = "fd00:96::/112"
	kubeConfig       = "/etc/kubernetes/config"
)

// kubernetesPrograms builds the programs of a version.
func kubernetesPrograms(t *testing.T, version string) (dir string) {
	t.Helper()
	for _, name := range []string{"kubelet", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubectl"} {
		var path string
		if version == oldestKubernetes {
			path = kubetest.Build(t, "kubernetes", version, "cmd/"+name)
		} else {
			path = kubetest.Program(t, "cmd/"+name)
		}
		dir = filepath.Dir(path)
	}
	return dir
}

// wire is a namespace with a bridge that connects all hosts. The namespace also represents the outside world.
type wire struct{ netns string }

func newWire(t *testing.T) wire {
	t.Helper()
	w := wire{kerneltest.Netns(t)}
	w.ip(t, "link set lo up", "link add br0 type bridge", "addr add "+outsideV4+"/24 dev br0", "addr add "+outsideV6+"/64 dev br0 nodad", "link set br0 up")
	return w
}

func (w wire) ip(t *testing.T, lines ...string) {
	t.Helper()
	for _, l := range lines {
		kerneltest.In(t, w.netns, strings.Fields("ip "+l)...)
	}
}

// join connects a host to the wire and gives it an IPv4 and an IPv6 address.
func (w wire) join(t *testing.T, h *host, port, ip string) {
	t.Helper()
	w.ip(t, "link add "+port+" type veth peer name up0 netns "+h.netns(), "link set "+port+" master br0 up")
	for _, l := range []string{"link set lo up", "link set up0 addrgenmode none", "addr add " + linkLocal(ip) + "/64 dev up0 nodad", "addr add " + ip + "/24 dev up0", "addr add " + sixOf(ip) + "/64 dev up0 nodad",
		"link set up0 up", "route add default via " + outsideV4, "route add default via " + outsideV6} {
		kerneltest.In(t, h.netns(), strings.Fields("ip "+l)...)
	}
}

// linkLocal returns the link-local address of the host with an IPv4 address. Without one, a host cannot find the neighbour
// for packets that it forwards. The kernel's own would appear late and count as a difference.
func linkLocal(ip string) string { return "fe80::" + ip[strings.LastIndex(ip, ".")+1:] }

// sixOf returns the IPv6 address of the host with an IPv4 address.
func sixOf(ip string) string {
	return strings.TrimSuffix(outsideV6, "1") + ip[strings.LastIndex(ip, ".")+1:]
}

// kubeHost starts a host of a cluster.
func (c *cluster) kubeHost(t *testing.T, port, ip string, binds map[string]string) *host {
	t.Helper()
	h := &host{name: hostName(), outside: c.wire.netns}
	binds[c.bin], binds[c.dir], binds[filepath.Dir(etcdtest.Current(t))] = kubernetesBin, "/mnt/e2e", etcdBin
	h.start(t, binds)
	c.keepLogs(t, h, port)
	c.wire.join(t, h, port, ip)
	h.write(t, kubeConfig, fill(t, "config.yaml", map[string]string{"API": controlIP}))
	return h
}

// fill returns a file of testdata/kubernetes with its variables replaced.
func fill(t *testing.T, file string, values map[string]string) string {
	t.Helper()
	raw, err := os.ReadFile("testdata/kubernetes/" + file)
	if err != nil {
		t.Fatal(err)
	}
	return os.Expand(string(raw), func(key string) string { return values[key] })
}

const controlIP = "198.51.100.10"

// startControl starts etcd, the API server, the controllers and the scheduler.
func (c *cluster) startControl(t *testing.T) {
	t.Helper()
	c.startStore(t)
	h := c.control
	argv := []string{kubernetesBin + "/kube-controller-manager", "--kubeconfig=" + kubeConfig, "--bind-address=127.0.0.1", "--leader-elect=false",
		"--service-cluster-ip-range=" + c.family.pick(serviceRange, serviceRange6), "--service-account-private-key-file=/etc/kubernetes/sa.key", "--root-ca-file=/run/kubernetes/apiserver.crt",
		"--cert-dir=/run/kubernetes-controllers"}
	if !c.blocks {
		argv = append(argv, "--allocate-node-cidrs=true", "--cluster-cidr="+c.family.pick(podRange, podRange6))
		argv = append(argv, strings.Split(c.family.pick("--node-cidr-mask-size-ipv4=24", "--node-cidr-mask-size-ipv6=64"), ",")...)
	}
	c.daemon(t, h, argv...)
	c.daemon(t, h, kubernetesBin+"/kube-scheduler", "--kubeconfig="+kubeConfig, "--bind-address=127.0.0.1", "--leader-elect=false", "--cert-dir=/run/kubernetes-scheduler")
	kerneltest.Within(t, time.Minute, func() error { _, err := c.kubectl("get", "serviceaccount", "default"); return err })
	c.logEndpoints(t)
}

// startStore starts etcd and the API server.
func (c *cluster) startStore(t *testing.T) {
	t.Helper()
	h := c.kubeHost(t, "control", controlIP, map[string]string{})
	c.control = h
	h.write(t, "/etc/kubernetes/tokens.csv", "e2e,admin,admin,system:masters\n")
	h.write(t, "/etc/kubernetes/sa.key", newKey(t))
	h.write(t, "/etc/kubernetes/audit.json", auditPolicy)
	program := etcdBin + "/etcd"
	if c.version == oldestKubernetes {
		program = "/usr/bin/etcd" // Debian's old one: the API server then does without some of its caches
	}
	c.daemon(t, h, program, "--data-dir=/var/lib/etcd", "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls=http://127.0.0.1:2379,"+agentStore, "--advertise-client-urls="+agentStore)
	c.startAPI(t)
}

// startAPI starts the API server and waits until it is ready.
func (c *cluster) startAPI(t *testing.T) {
	t.Helper()
	c.api = c.daemon(t, c.control, append([]string{kubernetesBin + "/kube-apiserver", "--etcd-servers=http://127.0.0.1:2379", "--bind-address=::", "--advertise-address=" + c.advertised(),
		"--secure-port=6443", "--cert-dir=/run/kubernetes", "--service-cluster-ip-range=" + c.family.pick(serviceRange, serviceRange6), "--token-auth-file=/etc/kubernetes/tokens.csv",
		"--authorization-mode=RBAC", "--allow-privileged=true", "--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=/etc/kubernetes/sa.key", "--service-account-signing-key-file=/etc/kubernetes/sa.key"}, c.apiFlags...)...)
	kerneltest.Within(t, time.Minute, func() error { _, err := c.kubectl("get", "--raw", "/readyz"); return err })
}

// advertised returns the address of the API server in the services' first family.
func (c *cluster) advertised() string {
	if c.family == ipv6 {
		return sixOf(controlIP)
	}
	return controlIP
}

// daemon starts a program of the cluster. If the test fails, it shows the end of the program's log.
func (c *cluster) daemon(t *testing.T, h *host, argv ...string) (pid string) {
	t.Helper()
	log := "/run/" + filepath.Base(argv[0]) + ".log"
	t.Cleanup(func() {
		if t.Failed() {
			lines, _ := h.run("tail", "-n", "15", log)
			t.Logf("log of %s on %s:\n%s", argv[0], h.name, lines)
		}
	})
	return h.daemon(t, log, argv...)
}

func newKey(t *testing.T) string {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}))
}
