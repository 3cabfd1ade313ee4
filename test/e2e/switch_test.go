package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/internal/reference"
)

// TestSwitched takes a host from the reference's plugins to ours and back, by the
// commands of docs/switching.md, while containers run and one of them is spoken with.
func TestSwitched(t *testing.T) {
	p := build(t)
	t.Run("client", func(t *testing.T) {
		for name, c := range clients(p) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				switched(t, p, c(t))
			})
		}
	})
}

func switched(t *testing.T, p programs, c client) {
	s := referenceStage(t, p, c)
	old := []*container{s.run(t, pod{ports: bothProtocols(18080)}), s.run(t, pod{ports: bothProtocols(18081)}), s.run(t, pod{})}
	held := s.held(t, network)
	if len(held) != 2*len(old) {
		t.Fatalf("%d addresses are held for %d pods: %v", len(held), len(old), held)
	}
	end := s.stream(t, old[0], at(hostV4, 18080))
	s.ourselves(t, "migrate", "--check")
	s.ourselves(t, "install")
	s.knows(t, old)
	s.healthy(t)
	s.refusesPortOf(t, old[0], 18080)
	late := s.run(t, pod{ports: bothProtocols(18082)})
	if v4, v6 := s.addresses(t, late, "eth0"); slices.Contains(held, v4) || slices.Contains(held, v6) {
		t.Errorf("a new pod has %s and %s; held were %v", v4, v6, held)
	}
	s.answersAll(t, map[int]*container{18080: old[0], 18081: old[1], 18082: late})
	s.knows(t, append(old, late))
	s.remove(t, old[1])
	s.answersAll(t, map[int]*container{18080: old[0], 18082: late})
	sent, lost := end()
	t.Logf("%d packets were sent, %d lost", sent, lost)
	if lost > 0 || sent < 500 {
		t.Errorf("%d of %d packets were lost in the switch", lost, sent) // when is noted above
	}
	next := s.run(t, pod{ports: bothProtocols(18081)}) // free again
	s.answersAll(t, map[int]*container{18081: next})
	s.remove(t, old[0], old[2], late, next)
	s.forgetShared(t)
	s.asBefore(t)

	s.ourselves(t, "uninstall")
	again := s.run(t, pod{ports: bothProtocols(18080)})
	s.answersAll(t, map[int]*container{18080: again})
	if out, err := s.host.run("iptables-save", "-t", "nat"); err != nil || !strings.Contains(out, "CNI-DN-") {
		t.Errorf("after uninstall the reference's plugins are not at work: %v: %s", err, out)
	}
	s.remove(t, again)
	s.asBefore(t)
}

// referenceStage is a client on a host with the reference's plugins, and a directory
// with both of our programs.
func referenceStage(t *testing.T, p programs, c client) *stage {
	t.Helper()
	ours := filepath.Join(p.dir, "both-"+strings.ReplaceAll(c.name(), " ", "-"))
	theirs := filepath.Join(ours, "theirs")
	if err := os.MkdirAll(theirs, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"bridge", "host-local", "portmap", "bandwidth", "firewall", "tuning", "loopback"} {
		if err := copyFile(reference.Plugin(t, name), filepath.Join(theirs, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, program := range []string{p.fuse, filepath.Join(p.plugin, "fairlead-cni")} {
		if err := os.Link(program, filepath.Join(ours, filepath.Base(program))); err != nil {
			t.Fatal(err)
		}
	}
	p.plugin = theirs
	c.use(p)
	s := newStage(t, c, p, plainList(c.spec()), "")
	s.fuse = filepath.Join("/mnt/e2e", filepath.Base(ours), "fairlead")
	return s
}

// ourselves runs our command on the host, and notes what it says.
func (s *stage) ourselves(t *testing.T, words ...string) string {
	t.Helper()
	out, err := s.host.run(append([]string{s.fuse}, words...)...)
	if err != nil {
		t.Fatalf("fairlead %s: %v", strings.Join(words, " "), err)
	}
	t.Logf("fairlead %s:\n%s", strings.Join(words, " "), out)
	return out
}

// knows holds the list of attachments to be those of some pods, all of them well.
func (s *stage) knows(t *testing.T, pods []*container) {
	t.Helper()
	type attachment struct {
		IfName    string   `json:"ifname"`
		State     string   `json:"state"`
		Addresses []string `json:"addresses"`
	}
	var list []attachment
	if err := json.Unmarshal([]byte(s.ourselves(t, "list", "--json")), &list); err != nil {
		t.Fatal(err)
	}
	// containerd has a list of its own, of loopback.
	list = slices.DeleteFunc(list, func(a attachment) bool { return a.IfName == "lo" })
	have := map[string]bool{}
	for _, l := range list {
		if l.State != "ok" {
			t.Errorf("%+v is not well", l)
		}
		for _, a := range l.Addresses {
			ip, _, _ := strings.Cut(a, "/")
			have[ip] = true
		}
	}
	for _, in := range pods {
		if v4, v6 := s.addresses(t, in, "eth0"); !have[v4] || !have[v6] || len(list) != len(pods) {
			t.Errorf("%s with %s and %s is not in the list, or there are others: %+v", in.name, v4, v6, list)
		}
	}
}

func (s *stage) answersAll(t *testing.T, ports map[int]*container) {
	t.Helper()
	for port, in := range ports {
		for _, network := range []string{"tcp", "udp"} {
			s.ask(t, s.fromOutside, network, at(hostV4, port), in.name, outsideV4)
			s.ask(t, s.fromOutside, network, at(hostV6, port), in.name, outsideV6)
		}
	}
}

// refusesPortOf asks for a host port that a pod has, and takes away what the client
// leaves of the pod that it could not start.
func (s *stage) refusesPortOf(t *testing.T, holder *container, host int) {
	t.Helper()
	s.names++
	in, err := s.client.run(pod{name: fmt.Sprintf("rival-%d", s.names), ports: bothProtocols(host)})
	id := holder.sandbox
	if id == "" {
		out, _ := s.host.run("podman", "inspect", "--format", "{{.Id}}", holder.id)
		id = strings.TrimSpace(out)
	}
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("host port %d/", host)) || !strings.Contains(err.Error(), "already taken by container "+id) {
		t.Errorf("a host port of %s, container %s: %v", holder.name, id, err)
	}
	if in.sandbox != "" || in.id != "" {
		s.remove(t, in)
	}
}

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

// forgetShared takes away what attachments of ours share and leave on purpose: our
// table, the places of records and of indexes. Nothing in them is an attachment's.
func (s *stage) forgetShared(t *testing.T) {
	t.Helper()
	table, err := s.host.run("nft", "list", "table", "inet", "fairlead")
	if err != nil {
		t.Error(err)
	}
	for _, own := range []string{rangeOfFirst, "fd00:88:", "comment \"" + network + " "} {
		if strings.Contains(table, own) {
			t.Errorf("our table still has something of %q:\n%s", own, table)
		}
	}
	records, err := s.host.run("find", "/run/fairlead", "-type", "f", "-size", "+0")
	if err != nil || records != "" {
		t.Errorf("records are left: %s (%v)", records, err)
	}
	for _, argv := range [][]string{{"nft", "delete", "table", "inet", "fairlead"}, {"rm", "-r", "/run/fairlead", "/var/lib/cni/networks/.fairlead"}} {
		if _, err := s.host.run(argv...); err != nil {
			t.Error(err)
		}
	}
}
