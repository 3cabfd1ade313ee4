package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// suite is a client on its own host, with the servers and state that the cases need.
type suite struct {
	client
	host *host
	programs
	baseline []string // state of the host without containers
	podCount int
	fuse     string // path of the program that fuses the lists, or ""
	command  string // path of our command on the host, after newReferenceSuite
	results  *results
}

// Ports of servers outside of containers.
const (
	hostPort    = 9090 // on the host
	outsidePort = 9091 // on its neighbour
)

// newSuite starts a client on its own host. It runs and removes one pod, so that the networks' shared objects (bridges,
// our table) exist from then on.
func newSuite(t *testing.T, c client, p programs, lists map[string]object, fuse string) *suite {
	t.Helper()
	s := &suite{client: c, programs: p, host: startHost(t, c.binds())}
	s.host.configure(t, lists, fuse)
	s.host.daemon(t, "/run/serve.log", "/mnt/e2e/probe", "serve", fmt.Sprintf(":%d", hostPort))
	serveOutside(t, s)
	c.start(t, s.host)
	warm := []string{network}
	if c.unsupported(chooseNetwork) == "" {
		warm = names(lists)
	}
	ctr := s.run(t, pod{networks: warm, ports: []port{{18000, servePort, "tcp"}, {18000, servePort, "udp"}}})
	kerneltest.Within(t, 10*time.Second, s.addressesReady) // a bridge without ports would keep its addresses tentative
	if err := s.client.remove(ctr); err != nil {
		t.Fatal(err)
	}
	kerneltest.Within(t, 5*time.Second, func() error {
		first := s.state(t)
		time.Sleep(300 * time.Millisecond) // an empty bridge changes its link state late
		s.baseline = s.state(t)
		if d := kerneltest.DiffLines(first, s.baseline); len(d) != 0 {
			return fmt.Errorf("the host's state still changes:\n%s", strings.Join(d, "\n"))
		}
		return nil
	})
	return s
}

// addressesReady returns an error while duplicate address detection is running.
func (s *suite) addressesReady() error {
	out, err := s.host.run("ip", "-6", "-o", "addr", "show", "tentative")
	if err == nil && strings.TrimSpace(out) != "" {
		err = fmt.Errorf("addresses are tentative:\n%s", out)
	}
	return err
}

func names(lists map[string]object) (out []string) {
	for _, l := range lists {
		out = append(out, l["name"].(string))
	}
	slices.Sort(out)
	return out
}

func serveOutside(t *testing.T, s *suite) {
	// The server runs in the host's process namespace, so that it ends with the host.
	argv := []string{"nsenter", "--target", strconv.Itoa(s.host.pid), "--mount", "--pid", "--net=" + s.host.outside, "--"}
	background(t, append(argv, "/mnt/e2e/probe", "serve", fmt.Sprintf(":%d", outsidePort))...)
}

// run starts a pod.
func (s *suite) run(t *testing.T, p pod) *container {
	t.Helper()
	s.podCount++
	p.name = fmt.Sprintf("pod-%d", s.podCount)
	ctr, err := s.client.run(p)
	if err != nil {
		t.Fatalf("run %s: %v", p.name, err)
	}
	return ctr
}

// remove removes pods and reports errors.
func (s *suite) remove(t *testing.T, all ...*container) {
	t.Helper()
	for _, ctr := range all {
		if err := s.client.remove(ctr); err != nil {
			t.Errorf("remove %s: %v", ctr.name, err)
		}
	}
}

// checkHealthy checks the existing attachments with our commands.
func (s *suite) checkHealthy(t *testing.T) {
	t.Helper()
	for _, argv := range [][]string{{"doctor"}, {"repair", "--dry-run"}, {"gc", "--all", "--dry-run"}} {
		if out, err := s.host.run(append([]string{"/mnt/e2e/fairlead"}, argv...)...); err != nil {
			t.Errorf("fairlead %s: %v: %s", strings.Join(argv, " "), err, out)
		}
	}
}

// addresses returns the addresses of a container's link, IPv4 first.
func (s *suite) addresses(t *testing.T, ctr *container, link string) (v4, v6 string) {
	t.Helper()
	all, err := links(s.client, ctr)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range all {
		for _, a := range l.Addresses {
			if l.Name == link && strings.Contains(a, ":") {
				v6 = a
			} else if l.Name == link {
				v4 = a
			}
		}
	}
	if v4 == "" || v6 == "" {
		t.Fatalf("%s has no address in both families on %s: %+v", ctr.name, link, all)
	}
	return v4, v6
}

// state returns all state of a host that a container may change, one item per line.
func (s *suite) state(t *testing.T) (lines []string) {
	t.Helper()
	lines = append(dumpLines(kerneltest.Dump(t, s.host.netns())), s.host.files(t)...)
	ps, err := s.host.run("ps", "-e", "-o", "comm=")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range strings.Split(ps, "\n") {
		if p != "ps" {
			lines = append(lines, "process "+p)
		}
	}
	// Only cgroups named after a container ID. conmon's cgroup stays.
	groups, _ := filepath.Glob("/sys/fs/cgroup/*" + s.host.cgroup() + "/*[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]")
	for i, l := range lines {
		lines[i] = strings.TrimRight(l, " ")
	}
	slices.Sort(lines)
	return append(lines, groups...)
}

// dumpLines splits a dump into lines, without timers and counters.
func dumpLines(dump string) []string {
	return strings.Split(kerneltest.Mask(dump, kerneltest.Timers, kerneltest.Counters), "\n")
}

// files returns the files that plugins and runtimes keep for containers.
func (h *host) files(t *testing.T) (paths []string) {
	t.Helper()
	for _, dir := range []string{"/var/lib/cni", "/run/fairlead", "/run/netns", "/run/user/0"} {
		err := filepath.WalkDir(h.path(dir), func(path string, _ os.DirEntry, err error) error {
			if err == nil {
				paths = append(paths, strings.TrimPrefix(path, h.path("")))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return paths
}

// checkUnchanged fails the case if the host's state differs from before.
func (s *suite) checkUnchanged(t *testing.T) {
	t.Helper()
	left := s.leftovers(t)
	if len(left) == 0 {
		return
	}
	for i, l := range left {
		left[i] = l[:min(len(l), 200)]
	}
	t.Errorf("the host differs from before in %d lines:\n%s", len(left), strings.Join(left[:min(len(left), 60)], "\n"))
}

// leftovers returns the differences from the state before. It waits some seconds for the runtime's cleanup.
func (s *suite) leftovers(t *testing.T) (left []string) {
	t.Helper()
	for end := time.Now().Add(kerneltest.Slow(5 * time.Second)); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if left = kerneltest.DiffLines(s.baseline, s.state(t)); len(left) == 0 {
			return nil
		}
	}
	return left
}
