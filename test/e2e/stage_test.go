package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// stage is a client in its host, with the servers and state that the cases need.
type stage struct {
	client
	host *host
	programs
	before []string // the host, when no container is there
	names  int
	fuse   string // the program that fuses its lists, or ""
	noted  *results
}

// Ports of servers that are no containers.
const (
	hostPort    = 9090 // on the host
	outsidePort = 9091 // on its neighbour
)

// newStage starts a client on its own host. It runs and removes one pod, so that the networks' shared objects (bridges,
// our table) exist from then on.
func newStage(t *testing.T, c client, p programs, lists map[string]object, fuse string) *stage {
	t.Helper()
	s := &stage{client: c, programs: p, host: newHost(t, c.binds())}
	s.host.configure(t, lists, fuse)
	s.host.daemon(t, "/run/serve.log", "/mnt/e2e/probe", "serve", fmt.Sprintf(":%d", hostPort))
	serveOutside(t, s)
	c.start(t, s.host)
	warm := []string{network}
	if c.lacks(chooseNetwork) == "" {
		warm = names(lists)
	}
	in := s.run(t, pod{networks: warm, ports: []port{{18000, servePort, "tcp"}, {18000, servePort, "udp"}}})
	eventually(t, 10*time.Second, s.usable) // without a port a bridge's address would stay tentative
	if err := s.client.remove(in); err != nil {
		t.Fatal(err)
	}
	eventually(t, 5*time.Second, func() error {
		first := s.state(t)
		time.Sleep(300 * time.Millisecond) // links of an empty bridge settle
		s.before = s.state(t)
		if d := difference(first, s.before); len(d) != 0 {
			return fmt.Errorf("the host is not quiet:\n%s", strings.Join(d, "\n"))
		}
		return nil
	})
	return s
}

// usable returns an error while duplicate address detection is running.
func (s *stage) usable() error {
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

func serveOutside(t *testing.T, s *stage) {
	// In the host's process namespace, with which it ends.
	argv := []string{"nsenter", "--target", strconv.Itoa(s.host.pid), "--mount", "--pid", "--net=" + s.host.outside, "--"}
	background(t, append(argv, "/mnt/e2e/probe", "serve", fmt.Sprintf(":%d", outsidePort))...)
}

// run starts a pod that answers. At the end of the case it removes the pod if it still exists.
func (s *stage) run(t *testing.T, p pod) *container {
	t.Helper()
	s.names++
	p.name = fmt.Sprintf("pod-%d", s.names)
	in, err := s.client.run(p)
	if err != nil {
		t.Fatalf("run %s: %v", p.name, err)
	}
	return in
}

// remove removes pods and reports errors.
func (s *stage) remove(t *testing.T, all ...*container) {
	t.Helper()
	for _, in := range all {
		if err := s.client.remove(in); err != nil {
			t.Errorf("remove %s: %v", in.name, err)
		}
	}
}

// healthy checks the existing attachments with our commands.
func (s *stage) healthy(t *testing.T) {
	t.Helper()
	for _, argv := range [][]string{{"doctor"}, {"repair", "--dry-run"}, {"gc", "--all", "--dry-run"}} {
		if out, err := s.host.run(append([]string{"/mnt/e2e/fairlead"}, argv...)...); err != nil {
			t.Errorf("fairlead %s: %v: %s", strings.Join(argv, " "), err, out)
		}
	}
}

// addresses returns the addresses of a container's link, IPv4 first.
func (s *stage) addresses(t *testing.T, in *container, link string) (v4, v6 string) {
	t.Helper()
	all, err := links(s.client, in)
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
		t.Fatalf("%s has no address in both families on %s: %+v", in.name, link, all)
	}
	return v4, v6
}

// state returns all state of a host that a container may change, one item per line.
func (s *stage) state(t *testing.T) (lines []string) {
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
	// Of a container; conmon's, which has none of its own, stays.
	groups, _ := filepath.Glob("/sys/fs/cgroup/*" + s.host.cgroup() + "/*[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]")
	for i, l := range lines {
		lines[i] = strings.TrimRight(l, " ")
	}
	slices.Sort(lines)
	return append(lines, groups...)
}

// dumpLines are a dump's, without what changes by itself.
func dumpLines(dump string) []string {
	moving := regexp.MustCompile(`_timer +[0-9.]+|packets [0-9]+ bytes [0-9]+`) // of bridges, of iptables
	return strings.Split(moving.ReplaceAllString(dump, ""), "\n")
}

// files are those that plugins and runtimes keep of containers.
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

// asBefore fails the case if the host's state differs from before. It waits a moment for the runtime's cleanup.
func (s *stage) asBefore(t *testing.T) {
	t.Helper()
	left := s.left(t)
	if len(left) == 0 {
		return
	}
	for i, l := range left {
		left[i] = l[:min(len(l), 200)]
	}
	t.Errorf("the host is not as before, by %d lines:\n%s", len(left), strings.Join(left[:min(len(left), 60)], "\n"))
}

// left is what differs from before, and goes on doing so.
func (s *stage) left(t *testing.T) (left []string) {
	t.Helper()
	for range 50 {
		if left = difference(s.before, s.state(t)); len(left) == 0 {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return left
}

// difference is what was taken away and what was added.
func difference(before, after []string) (out []string) {
	count := map[string]int{}
	for _, l := range before {
		count[l]--
	}
	for _, l := range after {
		count[l]++
	}
	for l, n := range count {
		if n < 0 {
			out = append(out, "- "+l)
		} else if n > 0 {
			out = append(out, "+ "+l)
		}
	}
	slices.Sort(out)
	return out
}
