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

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// burstSize is the number of pods in a burst, all started at once.
const burstSize = 50

// runMany starts pods concurrently and returns those that run.
func (s *suite) runMany(n int) (all []*container, err error) {
	var wait sync.WaitGroup
	containers := make([]*container, n)
	errs := make([]error, n)
	s.podCount++
	for i := range n {
		wait.Go(func() {
			containers[i], errs[i] = s.client.run(pod{name: fmt.Sprintf("burst-%d-%d", s.podCount, i), networks: []string{network}})
		})
	}
	wait.Wait()
	for i, e := range errs {
		if e == nil {
			all = append(all, containers[i])
		}
	}
	return all, errors.Join(errs...)
}

func (s *suite) removeMany(all []*container) error {
	var wait sync.WaitGroup
	errs := make([]error, len(all))
	for i, c := range all {
		wait.Go(func() { errs[i] = s.client.remove(c) })
	}
	wait.Wait()
	return errors.Join(errs...)
}

// allocated returns the addresses in host-local's directory for a network.
func (s *suite) allocated(t *testing.T, network string) (addresses []string) {
	t.Helper()
	files, err := os.ReadDir(s.host.path(filepath.Join("/var/lib/cni/networks", network)))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if n := f.Name(); strings.HasPrefix(n, firstSubnetV4) || strings.HasPrefix(n, "fd00:88::") {
			addresses = append(addresses, n)
		}
	}
	return addresses
}

func burst(t *testing.T, s *suite) {
	all, err := s.runMany(burstSize)
	if err != nil {
		t.Fatal(err)
	}
	if allocated := s.allocated(t, network); len(allocated) != 2*burstSize {
		t.Errorf("%d addresses are allocated for %d pods: %v", len(allocated), burstSize, allocated)
	}
	answers := map[string]int{}
	for _, a := range s.allocated(t, network) {
		out, err := s.fromHost("query", "tcp", at(a, servePort))
		if err != nil {
			t.Error(err)
		}
		name, _, _ := strings.Cut(out, " ")
		answers[name]++
	}
	for _, ctr := range all {
		if answers[ctr.name] != 2 {
			t.Errorf("%s answers on %d addresses", ctr.name, answers[ctr.name])
		}
	}
	if err := s.removeMany(all); err != nil {
		t.Error(err)
	}
}

// clientKilledInBurst kills the client while some pods run, some are being created, and some have not started. Then the
// client restarts and removes the pods that it knows.
func clientKilledInBurst(t *testing.T, s *suite) {
	done := make(chan error, 1)
	go func() { _, err := s.runMany(burstSize); done <- err }()
	kerneltest.Within(t, 30*time.Second, func() error {
		if n := len(s.allocated(t, network)); n < burstSize/2 {
			return fmt.Errorf("%d addresses are allocated", n)
		}
		return nil
	})
	if err := s.kill(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err == nil {
		t.Error("the burst had finished before the kill")
	}
	s.relaunch(t)
	if err := s.removeAll(); err != nil {
		t.Error(err)
	}
	ctr := s.run(t, pod{})
	v4, _ := s.addresses(t, ctr, "eth0")
	wantAnswer(t, s.fromHost, "tcp", at(v4, servePort), ctr.name, "")
	s.remove(t, ctr)
	for range 3 { // several times, as a timer would: hooks of killed processes may still create something
		if s.collectGarbage(t); len(s.leftovers(t)) == 0 {
			return
		}
	}
}

// collectGarbage removes pods whose network was being set up at the kill, because the client has no record of them. It
// removes leftover namespaces as an administrator would, and then runs our gc command for their attachments.
func (s *suite) collectGarbage(t *testing.T) {
	t.Helper()
	s.killProcesses(t)
	// The reference libcni writes its cache file in place. If the client is killed meanwhile, an empty file remains.
	// Our GC removes such a file only after some time, so the test makes it look older.
	if out, err := s.host.run("find", "/var/lib/cni", "-path", "*/results/*", "-size", "0", "-print", "-exec", "touch", "-d", "1 hour ago", "{}", ";"); err != nil || out != "" {
		t.Logf("empty result files: %s (%v)", out, err)
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

// killProcesses kills processes that did not exist before, and removes their cgroups.
func (s *suite) killProcesses(t *testing.T) {
	t.Helper()
	killed := map[string]int{}
	for more := true; more; {
		out, err := s.host.run("ps", "-e", "-o", "pid=,comm=")
		if err != nil {
			t.Fatal(err)
		}
		more = false
		for line := range strings.Lines(out) {
			pid, name, _ := strings.Cut(strings.TrimSpace(line), " ")
			if name != "ps" && !slices.Contains(s.baseline, "process "+name) {
				more = true
				killed[name]++
				_, _ = s.host.run("kill", "-9", pid) // may have ended with its parent
			}
		}
	}
	t.Logf("processes that were still running: %v", killed)
	if err := s.host.removeCgroups(); err != nil {
		t.Error(err)
	}
}

func parseInt(line string, err error) (int, error) {
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(line))
}
