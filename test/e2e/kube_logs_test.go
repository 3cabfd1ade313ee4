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

// logsVariable names a directory for the logs of a cluster's programs, and for timestamped changes of its endpoints and
// of each node's rules and routes. They help to find out why a case failed, but they slow the cluster down.
const logsVariable = "FAIRLEAD_E2E_LOGS"

// logDir returns the directory for a host's logs, or "" if logs are disabled.
func (c *cluster) logDir(t *testing.T, name string) (dir string) {
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

// keepLogs copies a host's logs when the test ends, before the host ends.
func (c *cluster) keepLogs(t *testing.T, h *host, name string) {
	t.Helper()
	dir := c.logDir(t, name)
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

// logOutput writes each line that a command on a host prints to a file, with the time, until the test ends.
func (c *cluster) logOutput(t *testing.T, h *host, name, file string, argv ...string) {
	t.Helper()
	dir := c.logDir(t, name)
	if dir == "" {
		return
	}
	f, err := os.Create(filepath.Join(dir, file))
	if err != nil {
		t.Fatal(err)
	}
	argv = h.nsenter(argv...)
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

// logEndpoints logs every change of the services' endpoints.
func (c *cluster) logEndpoints(t *testing.T) {
	t.Helper()
	const fields = `jsonpath={.metadata.name} {.metadata.resourceVersion} {.endpoints}{"\n"}` // endpoints may be null
	c.logOutput(t, c.control, "control", "endpoints", kubernetesBin+"/kubectl", "--kubeconfig="+kubeConfig, "get", "endpointslices", "-w", "-o", fields)
}

// logChanges logs changes of the node's rules, links, addresses and routes.
func (n *kubeNode) logChanges(t *testing.T) {
	t.Helper()
	n.cluster.logOutput(t, n.host, n.name, "nft-monitor", "nft", "monitor")
	n.cluster.logOutput(t, n.host, n.name, "ip-monitor", "ip", "monitor", "link", "address", "route")
}
