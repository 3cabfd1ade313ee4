package e2e

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/kubetest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/netns"
)

// serveVariable names a directory. TestServe starts a cluster, writes its kubeconfig there, and ends the cluster once the
// directory has a file "stop". "make kubernetes" and "make kubernetes-down" do both. modeVariable sets kube-proxy's mode.
const (
	serveVariable = "FAIRLEAD_KUBERNETES_SERVE"
	modeVariable  = "FAIRLEAD_KUBERNETES_MODE"
)

// TestServe runs a cluster for people: Kubernetes on three nodes, dual stack, with DNS and with Fairlead's manifest.
func TestServe(t *testing.T) {
	dir := kerneltest.OptIn(t, serveVariable)
	mode := os.Getenv(modeVariable)
	if mode == "" {
		mode = "nftables"
	}
	k := clusterKind{version: kubetest.Version, nodes: 3, mode: mode, network: kubernetesAgent, family: dualStack}
	p := build(t)
	copyRelease(t, p)
	c := newKubeCluster(t, p, kubernetesPrograms(t, k.version), k)
	c.startDNS(t)
	for _, i := range suiteImageList(t) {
		c.load(t, i)
	}
	raw, err := os.ReadFile(c.control.path(kubeConfig))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(raw), controlIP+":6443", c.forward(t, controlIP+":6443"), 1)
	temp := filepath.Join(dir, "kubeconfig.new")
	if err := errors.Join(os.WriteFile(temp, []byte(text), 0o600), os.Rename(temp, filepath.Join(dir, "kubeconfig"))); err != nil {
		t.Fatal(err)
	}
	for _, err := os.Stat(filepath.Join(dir, "stop")); err != nil; _, err = os.Stat(filepath.Join(dir, "stop")) {
		time.Sleep(200 * time.Millisecond)
	}
}

// forward listens on a port of the machine and connects to an address outside of the cluster's nodes. It returns the
// port's address.
func (c *cluster) forward(t *testing.T, to string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	ns, err := netns.Open(c.wire.netns)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer from.Close()
				var out net.Conn
				if err := ns.Do(func() (err error) { out, err = net.DialTimeout("tcp", to, 5*time.Second); return err }); err != nil {
					return
				}
				defer out.Close()
				go func() { _, _ = io.Copy(out, from); _ = out.(*net.TCPConn).CloseWrite() }()
				_, _ = io.Copy(from, out)
			}()
		}
	}()
	return l.Addr().String()
}
