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

// stream sends one packet per millisecond from outside to an address of the host, which leads to a pod, until the
// caller ends it. Packets dropped at a full socket buffer do not count as lost: there the program waited for a
// processor.
func (s *suite) stream(t *testing.T, to *container, addr string) (end func() (sent, lost int)) {
	t.Helper()
	stop := startStream(t, to.name, s.host.nsenterOutside(s.programs.probe, "stream", addr)...)
	before := s.drops(t, to)
	return func() (sent, lost int) {
		sent, lost, rest := stop()
		dropped := s.drops(t, to) - before
		t.Logf("%d packets dropped at full socket buffers; packets sent, packets without an answer, and their times:\n%s", dropped, rest)
		return sent, lost - dropped
	}
}

// startStream starts a command that runs the probe's stream, and waits until packets flow. stop returns the number of
// packets sent, that of packets without an answer, and all that the probe printed.
func startStream(t *testing.T, what string, argv ...string) (stop func() (sent, lost int, printed string)) {
	t.Helper()
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
		t.Fatalf("%s: the stream did not start: %q, %v", what, word, err)
	}
	return func() (sent, lost int, printed string) {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		rest, err := io.ReadAll(lines)
		if _, scan := fmt.Sscan(string(rest), &sent, &lost); err != nil || scan != nil {
			t.Fatalf("%s: the stream printed %q: %v %v", what, rest, err, scan)
		}
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
		return sent, lost, string(rest)
	}
}

// drops returns the number of packets dropped at full socket buffers in a pod and on the host's neighbour.
func (s *suite) drops(t *testing.T, ctr *container) (all int) {
	t.Helper()
	for _, from := range []probeFunc{s.from(ctr), s.fromOutside} {
		n, err := parseInt(from("drops"))
		if err != nil {
			t.Fatal(err)
		}
		all += n
	}
	return all
}
