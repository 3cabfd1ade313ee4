package scenario

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/fairlead/fairlead/internal/dhcptest"
)

// startDaemon starts the DHCP daemon and returns when it listens.
func startDaemon(t testing.TB, socket, leases string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(filepath.Join(programs, "daemon"), socket, leases)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { endDaemon(cmd) })
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "listening") {
	}
	if lines.Err() != nil || lines.Text() == "" {
		t.Fatalf("the DHCP daemon does not listen: %v", lines.Err())
	}
	go func() { // discard its log
		for lines.Scan() {
		}
	}()
	return cmd
}

func endDaemon(cmd *exec.Cmd) {
	_ = cmd.Process.Signal(syscall.SIGTERM)
	_ = cmd.Wait()
}

func dhcpNet(ts *testscript.TestScript, _ bool, args []string) {
	n := dhcptest.New(tb(ts), args[0], args[1])
	ts.Check(os.Symlink(n.LeaseFile(), ts.MkAbs("dnsmasq.leases")))
	n.Dnsmasq(args[2:]...)
}

func dhcpDaemon(ts *testscript.TestScript, _ bool, args []string) {
	running := ts.Value("daemon").(*runningDaemon)
	if args[0] == "start" {
		running.cmd = startDaemon(tb(ts), ts.Getenv("DHCP_SOCKET"), ts.MkAbs("leases"))
		return
	}
	endDaemon(running.cmd)
}

// runningDaemon is the scenario's DHCP daemon while it runs.
type runningDaemon struct{ cmd *exec.Cmd }
