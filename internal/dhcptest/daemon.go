package dhcptest

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// Daemon starts Fairlead's DHCP daemon and returns when it listens. The program is the one of package plugintest, under
// the name plugintest.Daemon. The returned function ends the daemon and waits for it; the end of the test does so, too.
func Daemon(t testing.TB, program, socket, leases string) (end func()) {
	t.Helper()
	cmd := exec.Command(program, socket, leases)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	end = sync.OnceFunc(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	t.Cleanup(end)
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
	return end
}
