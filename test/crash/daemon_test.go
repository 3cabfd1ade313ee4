package crash

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// startDaemon starts the DHCP daemon and returns when it listens.
func startDaemon(m *machine, socket, leases string) {
	m.T.Helper()
	cmd := exec.Command(filepath.Join(m.Dir, "bin", "daemon"), socket, leases)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		m.T.Fatal(err)
	}
	m.T.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "listening") {
	}
	if lines.Err() != nil || lines.Text() == "" {
		m.T.Fatalf("the DHCP daemon does not listen: %v", lines.Err())
	}
	go func() { // discard its log
		for lines.Scan() {
		}
	}()
}
