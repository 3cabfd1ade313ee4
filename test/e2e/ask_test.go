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

// place is where a question is asked from.
type place func(argv ...string) (string, error)

func (s *stage) fromHost(argv ...string) (string, error) {
	return s.host.run(append([]string{"/mnt/e2e/probe"}, argv...)...)
}

func (s *stage) fromOutside(argv ...string) (string, error) {
	return run(s.host.beyond(append([]string{s.programs.probe}, argv...)...)...)
}

func (s *stage) from(in *container) place {
	return func(argv ...string) (string, error) { return s.client.exec(in, append([]string{"/probe"}, argv...)...) }
}

// ask asks a server of a network and address, until it answers or the time is
// over, and compares its name and the address that it saw, "" for any.
func (s *stage) ask(t *testing.T, from place, network, to string, wantName, wantSeen string, local ...string) {
	t.Helper()
	askFrom(t, from, network, to, wantName, wantSeen, local...)
}

func askFrom(t *testing.T, from place, network, to string, wantName, wantSeen string, local ...string) {
	t.Helper()
	question := append([]string{"ask", network, to}, local...)
	eventually(t, 10*time.Second, func() error {
		out, err := from(question...)
		if err != nil {
			return err
		}
		name, seen, _ := strings.Cut(strings.TrimSpace(out), " ")
		host, _, err := net.SplitHostPort(seen)
		host = strings.TrimPrefix(host, "::ffff:")
		if err != nil || name != wantName || wantSeen != "" && host != wantSeen {
			return fmt.Errorf("%s %s answered as %s and saw %s, want %s and %s (%v)", network, to, name, seen, wantName, wantSeen, err)
		}
		return nil
	})
}

func at(ip string, port int) string { return net.JoinHostPort(ip, fmt.Sprint(port)) }

// eventually tries until there is no error: servers take a moment to start.
func eventually(t *testing.T, within time.Duration, try func() error) {
	t.Helper()
	end := time.Now().Add(kerneltest.Slow(within))
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("after %v: %v", within, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

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
