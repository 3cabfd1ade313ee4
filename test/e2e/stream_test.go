package e2e

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// stream sends a packet a millisecond from outside to an address of the host, which
// leads to a pod, until it is ended. What a socket at either end had no room for is
// not lost: whose program had to wait for a processor.
func (s *stage) stream(t *testing.T, to *container, addr string) (end func() (sent, lost int)) {
	t.Helper()
	argv := s.host.beyond(s.programs.probe, "stream", addr)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	lines := bufio.NewReader(stdout)
	if word, err := lines.ReadString('\n'); err != nil {
		t.Fatalf("the stream does not begin: %q, %v", word, err)
	}
	before := s.drops(t, to)
	return func() (sent, lost int) {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		rest, err := io.ReadAll(lines)
		if _, scan := fmt.Sscan(string(rest), &sent, &lost); err != nil || scan != nil {
			t.Fatalf("the stream said %q: %v %v", rest, err, scan)
		}
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
		dropped := s.drops(t, to) - before
		t.Logf("of the stream were sent, had no answer, and when; at its ends was no room for %d:\n%s", dropped, rest)
		return sent, lost - dropped
	}
}

// drops are the packets that sockets of a pod and of the host's neighbour had no room
// for.
func (s *stage) drops(t *testing.T, in *container) (all int) {
	t.Helper()
	for _, from := range []place{s.from(in), s.fromOutside} {
		n, err := number(from("drops"))
		if err != nil {
			t.Fatal(err)
		}
		all += n
	}
	return all
}
