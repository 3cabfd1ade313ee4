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

// TestSwitchAndBack switches a host from the reference plugins to ours and back, with the commands of
// docs/switching.md, while containers run and one of them receives traffic.
func TestSwitchAndBack(t *testing.T) {
	p := build(t)
	t.Run("client", func(t *testing.T) {
		for name, c := range clients(p) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				switchAndBack(t, p, c(t))
			})
		}
	})
}

func switchAndBack(t *testing.T, p programs, c client) {
	s := newReferenceSuite(t, p, c)
	old := []*container{s.run(t, pod{ports: tcpAndUDP(18080)}), s.run(t, pod{ports: tcpAndUDP(18081)}), s.run(t, pod{})}
	allocated := s.allocated(t, network)
	if len(allocated) != 2*len(old) {
		t.Fatalf("%d addresses are allocated for %d pods: %v", len(allocated), len(old), allocated)
	}
	end := s.stream(t, old[0], at(hostV4, 18080))
	s.runFairlead(t, "migrate", "--dry-run")
	s.runFairlead(t, "install")
	s.wantAttachments(t, old)
	s.checkHealthy(t)
	chain := ":CNI-DN-" // of portmap
	if c.unsupported(hostPorts) == "" {
		s.wantPortTaken(t, old[0], 18080)
	} else {
		chain = ":CNI-" // of bridge, which masquerades
	}
	added := s.run(t, pod{ports: tcpAndUDP(18082)})
	if v4, v6 := s.addresses(t, added, "eth0"); slices.Contains(allocated, v4) || slices.Contains(allocated, v6) {
		t.Errorf("a new pod has %s and %s, which were allocated already: %v", v4, v6, allocated)
	}
	s.wantAnswers(t, map[int]*container{18080: old[0], 18081: old[1], 18082: added})
	s.wantAttachments(t, append(old, added))
	s.remove(t, old[1])
	s.wantAnswers(t, map[int]*container{18080: old[0], 18082: added})
	sent, lost := end()
	t.Logf("%d packets were sent, %d lost", sent, lost)
	if lost > 0 || sent < 500 {
		t.Errorf("%d of %d packets were lost during the switch", lost, sent) // the log above shows when
	}
	replacement := s.run(t, pod{ports: tcpAndUDP(18081)}) // the port is free again
	s.wantAnswers(t, map[int]*container{18081: replacement})
	s.remove(t, old[0], old[2], added, replacement)
	s.removeShared(t)
	s.checkUnchanged(t)

	s.runFairlead(t, "uninstall")
	restored := s.run(t, pod{ports: tcpAndUDP(18080)})
	s.wantAnswers(t, map[int]*container{18080: restored})
	if out, err := s.host.run("iptables-save", "-t", "nat"); err != nil || !strings.Contains(out, chain) {
		t.Errorf("the reference plugins do not work after uninstall: %v: %s", err, out)
	}
	s.remove(t, restored)
	// nerdctl calls DEL without a namespace, and the reference plugins then leave their masquerade rules.
	if c.name() != "nerdctl" {
		s.checkUnchanged(t)
	}
}

// newReferenceSuite starts a client on a host with the reference plugins, and a directory with both of our programs.
func newReferenceSuite(t *testing.T, p programs, c client) *suite {
	t.Helper()
	dir := filepath.Join(p.dir, "both-"+strings.ReplaceAll(c.name(), " ", "-"))
	referenceDir := filepath.Join(dir, "reference")
	if err := os.MkdirAll(referenceDir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"bridge", "host-local", "portmap", "bandwidth", "firewall", "tuning", "loopback"} {
		if err := copyFile(reference.Plugin(t, name), filepath.Join(referenceDir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, program := range []string{p.fairlead, filepath.Join(p.plugin, "fairlead-cni")} {
		if err := os.Link(program, filepath.Join(dir, filepath.Base(program))); err != nil {
			t.Fatal(err)
		}
	}
	p.plugin = referenceDir
	c.setPrograms(p)
	s := newSuite(t, c, p, plainList(c.spec()), "")
	s.command = filepath.Join("/mnt/e2e", filepath.Base(dir), "fairlead")
	return s
}

// runFairlead runs our command on the host, and logs its output.
func (s *suite) runFairlead(t *testing.T, args ...string) string {
	t.Helper()
	out, err := s.host.run(append([]string{s.command}, args...)...)
	if err != nil {
		t.Fatalf("fairlead %s: %v", strings.Join(args, " "), err)
	}
	t.Logf("fairlead %s:\n%s", strings.Join(args, " "), out)
	return out
}

// attachment is an entry of fairlead list.
type attachment struct {
	Container string   `json:"container"`
	IfName    string   `json:"ifname"`
	State     string   `json:"state"`
	Addresses []string `json:"addresses"`
}

func (s *suite) attachments(t *testing.T) (list []attachment) {
	t.Helper()
	out, err := s.host.run(s.command, "list", "--json")
	if err == nil {
		err = json.Unmarshal([]byte(out), &list)
	}
	if err != nil {
		t.Fatal(err)
	}
	// containerd also attaches loopback with a list.
	return slices.DeleteFunc(list, func(a attachment) bool { return a.IfName == "lo" })
}

// attachmentOf finds the attachment of a pod by its addresses.
func (s *suite) attachmentOf(t *testing.T, ctr *container, list []attachment) attachment {
	t.Helper()
	v4, v6 := s.addresses(t, ctr, "eth0")
	for _, a := range list {
		if slices.Equal(a.Addresses, []string{v4 + "/16", v6 + "/64"}) {
			return a
		}
	}
	t.Errorf("fairlead list does not show %s with %s and %s: %+v", ctr.name, v4, v6, list)
	return attachment{}
}

// wantAttachments checks that fairlead list shows exactly these pods, and that all are ok.
func (s *suite) wantAttachments(t *testing.T, pods []*container) {
	t.Helper()
	list := s.attachments(t)
	if len(list) != len(pods) {
		t.Errorf("%d pods run, and fairlead list shows %+v", len(pods), list)
	}
	for _, ctr := range pods {
		if a := s.attachmentOf(t, ctr, list); a.State != "ok" {
			t.Errorf("fairlead list shows %s as %q", ctr.name, a.State)
		}
	}
}

// wantAnswers checks from outside that each host port leads to its pod.
func (s *suite) wantAnswers(t *testing.T, ports map[int]*container) {
	t.Helper()
	for port, ctr := range ports {
		for _, network := range []string{"tcp", "udp"} {
			wantAnswer(t, s.fromOutside, network, at(hostV4, port), ctr.name, outsideV4)
			wantAnswer(t, s.fromOutside, network, at(hostV6, port), ctr.name, outsideV6)
		}
	}
}

// wantPortTaken requests a host port that another pod has, expects an error, and removes what the client leaves of the
// failed pod.
func (s *suite) wantPortTaken(t *testing.T, holder *container, host int) {
	t.Helper()
	s.podCount++
	ctr, err := s.client.run(pod{name: fmt.Sprintf("rival-%d", s.podCount), ports: tcpAndUDP(host)})
	id := s.attachmentOf(t, holder, s.attachments(t)).Container
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("host port %d/", host)) || !strings.Contains(err.Error(), "already taken by container "+id) {
		t.Errorf("request a host port of %s, container %s: %v", holder.name, id, err)
	}
	if ctr.sandbox != "" || ctr.id != "" {
		s.remove(t, ctr)
	}
}

// removeShared removes the objects that attachments share and keep on purpose: our table, and the directories of
// records and indexes. None of them belongs to a single attachment.
func (s *suite) removeShared(t *testing.T) {
	t.Helper()
	table, err := s.host.run("nft", "list", "table", "inet", "fairlead")
	if err != nil {
		t.Error(err)
	}
	for _, text := range []string{firstSubnetV4, "fd00:88:", "comment \"" + network + " "} {
		if strings.Contains(table, text) {
			t.Errorf("our table still contains %q:\n%s", text, table)
		}
	}
	records, err := s.host.run("find", "/run/fairlead", "-type", "f", "-size", "+0")
	if err != nil || records != "" {
		t.Errorf("records remain: %s (%v)", records, err)
	}
	for _, argv := range [][]string{{"nft", "delete", "table", "inet", "fairlead"}, {"rm", "-r", "/run/fairlead", "/var/lib/cni/networks/.fairlead"}} {
		if _, err := s.host.run(argv...); err != nil {
			t.Error(err)
		}
	}
}
