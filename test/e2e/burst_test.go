package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// many is the number of pods in a burst, all started at once.
const many = 50

// runMany starts pods at once and returns those that run.
func (s *stage) runMany(n int) (all []*container, err error) {
	var wait sync.WaitGroup
	made := make([]*container, n)
	errs := make([]error, n)
	s.names++
	for i := range n {
		wait.Go(func() {
			made[i], errs[i] = s.client.run(pod{name: fmt.Sprintf("burst-%d-%d", s.names, i), networks: []string{network}})
		})
	}
	wait.Wait()
	for i, e := range errs {
		if e == nil {
			all = append(all, made[i])
		}
	}
	return all, errors.Join(errs...)
}

func (s *stage) removeMany(all []*container) error {
	var wait sync.WaitGroup
	errs := make([]error, len(all))
	for i, c := range all {
		wait.Go(func() { errs[i] = s.client.remove(c) })
	}
	wait.Wait()
	return errors.Join(errs...)
}

// held returns the addresses in host-local's directory for a network.
func (s *stage) held(t *testing.T, network string) (held []string) {
	t.Helper()
	files, err := os.ReadDir(s.host.path(filepath.Join("/var/lib/cni/networks", network)))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if n := f.Name(); strings.HasPrefix(n, rangeOfFirst) || strings.HasPrefix(n, "fd00:88::") {
			held = append(held, n)
		}
	}
	return held
}

func burst(t *testing.T, s *stage) {
	all, err := s.runMany(many)
	if err != nil {
		t.Fatal(err)
	}
	if held := s.held(t, network); len(held) != 2*many {
		t.Errorf("%d addresses are held for %d pods: %v", len(held), many, held)
	}
	answers := map[string]int{}
	for _, a := range s.held(t, network) {
		out, err := s.fromHost("ask", "tcp", at(a, servePort))
		if err != nil {
			t.Error(err)
		}
		name, _, _ := strings.Cut(out, " ")
		answers[name]++
	}
	for _, in := range all {
		if answers[in.name] != 2 {
			t.Errorf("%s answers on %d addresses", in.name, answers[in.name])
		}
	}
	if err := s.removeMany(all); err != nil {
		t.Error(err)
	}
}

// killedInBurst kills the client while some pods run, some are being created, and some have not started. Then the
// client restarts and removes the pods that it knows.
func killedInBurst(t *testing.T, s *stage) {
	done := make(chan error, 1)
	go func() { _, err := s.runMany(many); done <- err }()
	eventually(t, 30*time.Second, func() error {
		if n := len(s.held(t, network)); n < many/2 {
			return fmt.Errorf("%d addresses are held", n)
		}
		return nil
	})
	if err := s.kill(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err == nil {
		t.Error("nothing was cut off: the burst was over")
	}
	s.again(t)
	if err := s.removeAll(); err != nil {
		t.Error(err)
	}
	in := s.run(t, pod{})
	v4, _ := s.addresses(t, in, "eth0")
	s.ask(t, s.fromHost, "tcp", at(v4, servePort), in.name, "")
	s.remove(t, in)
	for range 3 { // as by a timer: hooks of what is ended by hand may still do something
		if s.collect(t); len(s.left(t)) == 0 {
			return
		}
	}
}

// collect removes what the client forgot: it has no record yet of a pod whose network was being set up. The test
// removes leftover namespaces as an administrator would; our command removes attachments whose namespace is gone.
func (s *stage) collect(t *testing.T) {
	t.Helper()
	s.endProcesses(t)
	// The reference libcni writes its cache in place: if it is killed, an empty file remains, which names no
	// attachment. Our GC removes the file when it is older.
	if out, err := s.host.run("find", "/var/lib/cni", "-path", "*/results/*", "-size", "0", "-print", "-exec", "touch", "-d", "1 hour ago", "{}", ";"); err != nil || out != "" {
		t.Logf("empty results: %s (%v)", out, err)
	}
	left, err := os.ReadDir(s.host.path("/run/netns"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for _, ns := range left {
		if _, err := s.host.run("ip", "netns", "delete", ns.Name()); err != nil {
			t.Error(err)
		}
	}
	out, err := s.host.run("/mnt/e2e/fairlead", "gc", "--all")
	if err != nil {
		t.Error(err)
	}
	t.Logf("%d namespaces were left; fairlead gc --all: %s", len(left), out)
}

// endProcesses kills processes that did not exist before, their children, and their cgroups.
func (s *stage) endProcesses(t *testing.T) {
	t.Helper()
	ended := map[string]int{}
	for more := true; more; {
		out, err := s.host.run("ps", "-e", "-o", "pid=,comm=")
		if err != nil {
			t.Fatal(err)
		}
		more = false
		for line := range strings.Lines(out) {
			pid, name, _ := strings.Cut(strings.TrimSpace(line), " ")
			if name != "ps" && !slices.Contains(s.before, "process "+name) {
				more = true
				ended[name]++
				_, _ = s.host.run("kill", "-9", pid) // may have ended with another
			}
		}
	}
	t.Logf("left running: %v", ended)
	if err := s.host.removeCgroups(); err != nil {
		t.Error(err)
	}
}

func number(line string, err error) (int, error) {
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(line))
}
