package e2e

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// logsVariable names a directory for everything that a cluster's programs say, and
// for when its endpoints and each node's rules and routes changed: to find out why a
// case failed. All of that takes its time from the cluster.
const logsVariable = "FAIRLEAD_E2E_LOGS"

// logs is a directory for those of a host, "" where nobody asked for them.
func (c *cluster) logs(t *testing.T, name string) (dir string) {
	t.Helper()
	if dir = os.Getenv(logsVariable); dir == "" {
		return ""
	}
	dir = filepath.Join(dir, strings.NewReplacer(" ", "-", ",", "").Replace(c.String()), name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// keepLogs copies a host's logs when the test ends, which is before the host does.
func (c *cluster) keepLogs(t *testing.T, h *host, name string) {
	t.Helper()
	dir := c.logs(t, name)
	if dir == "" {
		return
	}
	t.Cleanup(func() {
		for _, pattern := range []string{"/run/*.log", "/var/log/pods/*/*/*.log"} {
			found, _ := filepath.Glob(h.path(pattern))
			for _, file := range found {
				to := strings.ReplaceAll(strings.TrimPrefix(file, h.path("/")+"/"), "/", "_")
				if err := copyFile(file, filepath.Join(dir, to)); err != nil {
					t.Error(err)
				}
			}
		}
	})
}

// note writes down each line of what a command in a host says until the test ends,
// and when it said it.
func (c *cluster) note(t *testing.T, h *host, name, file string, argv ...string) {
	t.Helper()
	dir := c.logs(t, name)
	if dir == "" {
		return
	}
	f, err := os.Create(filepath.Join(dir, file))
	if err != nil {
		t.Fatal(err)
	}
	argv = h.within(argv...)
	cmd := exec.Command(argv[0], argv[1:]...)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			fmt.Fprintln(f, time.Now().Format("15:04:05.000"), lines.Text())
		}
		_ = cmd.Wait()
		_ = f.Close()
	}()
}

// noteEndpoints notes every state of every service's endpoints.
func (c *cluster) noteEndpoints(t *testing.T) {
	t.Helper()
	const fields = `jsonpath={.metadata.name} {.metadata.resourceVersion} {.endpoints}{"\n"}` // which may be null
	c.note(t, c.control, "control", "endpoints", kubernetesBin+"/kubectl", "--kubeconfig="+kubeConfig, "get", "endpointslices", "-w", "-o", fields)
}

// noteNode notes what changes in a node's network.
func (n *kubeNode) noteNode(t *testing.T) {
	t.Helper()
	n.cluster.note(t, n.host, n.name, "nft-monitor", "nft", "monitor")
	n.cluster.note(t, n.host, n.name, "ip-monitor", "ip", "monitor", "link", "address", "route")
}
