package e2e

import (
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// probeFunc runs the probe with arguments, in a container, on a host or outside, and returns its output.
type probeFunc func(argv ...string) (string, error)

func (s *suite) fromHost(argv ...string) (string, error) {
	return s.host.run(append([]string{"/mnt/e2e/probe"}, argv...)...)
}

func (s *suite) fromOutside(argv ...string) (string, error) {
	return run(s.host.nsenterOutside(append([]string{s.programs.probe}, argv...)...)...)
}

func (s *suite) from(ctr *container) probeFunc {
	return func(argv ...string) (string, error) {
		return s.client.exec(ctr, append([]string{"/probe"}, argv...)...)
	}
}

// wantAnswer sends requests to a server until the answer has the server's name and the request's source address as
// expected. An empty wantSource means any address. network is "tcp" or "udp", optionally with "4" or "6"; local is an
// optional source address.
func wantAnswer(t *testing.T, from probeFunc, network, to string, wantName, wantSource string, local ...string) {
	t.Helper()
	args := append([]string{"query", network, to}, local...)
	kerneltest.Within(t, 10*time.Second, func() error {
		out, err := from(args...)
		if err != nil {
			return err
		}
		name, source, _ := strings.Cut(strings.TrimSpace(out), " ")
		host, _, err := net.SplitHostPort(source)
		host = strings.TrimPrefix(host, "::ffff:")
		if err != nil || name != wantName || wantSource != "" && host != wantSource {
			return fmt.Errorf("%s %s: answer from %s to source %s, want %s and %s (%v)", network, to, name, source, wantName, wantSource, err)
		}
		return nil
	})
}

func at(ip string, port int) string { return net.JoinHostPort(ip, fmt.Sprint(port)) }

// background runs a command until the test ends.
func background(t *testing.T, argv ...string) {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}
