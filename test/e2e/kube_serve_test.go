package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
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

const podsPath = "/api/v1/namespaces/default/pods"

// api is a client of a cluster's API.
type api struct {
	url    string
	client *http.Client
}

func (c *cluster) newAPI(t *testing.T) *api {
	t.Helper()
	return &api{"https://" + c.forward(t, controlIP+":6443"),
		&http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, MaxIdleConnsPerHost: 32}}}
}

// do sends a request, and returns the answer's body.
func (a *api) do(ctx context.Context, method, path string, body any) (io.ReadCloser, error) {
	var raw []byte
	if body != nil {
		var err error
		if raw, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, a.url+path, bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer e2e")
	answer, err := a.client.Do(r)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode/100 != 2 {
		text, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		return nil, fmt.Errorf("%s %s: %s: %s", method, path, answer.Status, text)
	}
	return answer.Body, nil
}

// create creates an object. A busy API server may close a connection without an answer; then it tries again.
func (a *api) create(ctx context.Context, path string, what object) error {
	for again := 0; ; again++ {
		answer, err := a.do(ctx, http.MethodPost, path, what)
		if err == nil {
			return answer.Close()
		}
		if again > 0 && strings.Contains(err.Error(), ": 409 ") {
			return nil // the request without an answer created it
		}
		if again == 3 || !errors.Is(err, io.EOF) {
			return err
		}
	}
}
