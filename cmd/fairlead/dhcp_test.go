package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/docker"
	"github.com/fairlead/fairlead/plugins/ipam/dhcpd"
)

// TestSocketActivation verifies that the daemon listens on the socket that systemd passes.
func TestSocketActivation(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	must(t, err)
	defer l.Close()
	file, err := l.(*net.UnixListener).File()
	must(t, err)
	path, err := exec.LookPath("fairlead")
	must(t, err)
	for fds, good := range map[string]bool{"1": true, "2": false, "x": false} {
		cmd := exec.Command("sh", "-c", `LISTEN_PID=$$ LISTEN_FDS=$0 exec "$@"`, fds, path, "dhcp-daemon", "--socketpath", "/nonexistent/s", "--leases", t.TempDir())
		cmd.ExtraFiles = []*os.File{file}
		cmd.Stderr = os.Stderr
		must(t, cmd.Start())
		if !good {
			if cmd.Wait() == nil {
				t.Errorf("LISTEN_FDS=%s: success", fds)
			}
			continue
		}
		list, err := dhcpd.List(socket)
		must(t, err)
		if len(list) != 0 {
			t.Errorf("leases: %v", list)
		}
		must(t, cmd.Process.Signal(syscall.SIGTERM))
		must(t, cmd.Wait())
		if _, err := os.Stat(socket); err != nil {
			t.Errorf("systemd's socket was taken away: %v", err)
		}
	}
}

// TestUnits compares the command and the socket in the units with the program.
func TestUnits(t *testing.T) {
	t.Parallel()
	for file, lines := range map[string][]string{
		"fairlead-dhcp.socket":  {"ListenStream=/run/cni/dhcp.sock"},
		"fairlead-dhcp.service": {"ExecStart=/usr/bin/fairlead dhcp-daemon", "Requires=fairlead-dhcp.socket"},

		"fairlead-docker.socket":  {"ListenStream=" + docker.DefaultSocket},
		"fairlead-docker.service": {"ExecStart=/usr/bin/fairlead docker-plugin", "Requires=fairlead-docker.socket"},
	} {
		raw, err := os.ReadFile("../../contrib/systemd/" + file)
		must(t, err)
		for _, l := range lines {
			if !strings.Contains(string(raw), "\n"+l+"\n") {
				t.Errorf("%s lacks %s", file, l)
			}
		}
	}
}
