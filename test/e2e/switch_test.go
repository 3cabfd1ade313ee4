package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/reference"
)

// TestSwitched moves a host from the reference plugins to ours and back, with the commands of docs/switching.md, while
// containers run and one of them receives traffic.
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
	s.ourselves(t, "migrate", "--dry-run")
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
	if c.name() != "nerdctl" { // whose DEL has no namespace: the reference leaves its masquerade then
		s.asBefore(t)
	}
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

// attachment is one that our list of them has.
type attachment struct {
	Container string   `json:"container"`
	IfName    string   `json:"ifname"`
	State     string   `json:"state"`
	Addresses []string `json:"addresses"`
}

func (s *stage) attachments(t *testing.T) (list []attachment) {
	t.Helper()
	out, err := s.host.run(s.fuse, "list", "--json")
	if err == nil {
		err = json.Unmarshal([]byte(out), &list)
	}
	if err != nil {
		t.Fatal(err)
	}
	// containerd has a list of its own, of loopback.
	return slices.DeleteFunc(list, func(a attachment) bool { return a.IfName == "lo" })
}

// of is the attachment of a pod, by its addresses.
func (s *stage) of(t *testing.T, in *container, list []attachment) attachment {
	t.Helper()
	v4, v6 := s.addresses(t, in, "eth0")
	for _, a := range list {
		if slices.Equal(a.Addresses, []string{v4 + "/16", v6 + "/64"}) {
			return a
		}
	}
	t.Errorf("%s with %s and %s is not in the list: %+v", in.name, v4, v6, list)
	return attachment{}
}

// knows holds the list of attachments to be those of some pods, all of them well.
func (s *stage) knows(t *testing.T, pods []*container) {
	t.Helper()
	list := s.attachments(t)
	if len(list) != len(pods) {
		t.Errorf("%d pods run, and in the list are %+v", len(pods), list)
	}
	for _, in := range pods {
		if a := s.of(t, in, list); a.State != "ok" {
			t.Errorf("%s is %q in the list", in.name, a.State)
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
	id := s.of(t, holder, s.attachments(t)).Container
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("host port %d/", host)) || !strings.Contains(err.Error(), "already taken by container "+id) {
		t.Errorf("a host port of %s, container %s: %v", holder.name, id, err)
	}
	if in.sandbox != "" || in.id != "" {
		s.remove(t, in)
	}
}

// forgetShared removes the objects that our attachments share and keep on purpose: our table, and the directories of
// records and indexes. None of them belongs to a single attachment.
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
