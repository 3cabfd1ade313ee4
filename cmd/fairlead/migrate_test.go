package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/internal/netnspath"
	"github.com/fairlead/fairlead/internal/reference"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/netns"
)

const theirNetwork = `{"cniVersion": "1.0.0", "name": "n", "plugins": [
	{"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true, "ipam": {"type": "host-local", "subnet": "10.1.0.0/24", "routes": [{"dst": "0.0.0.0/0"}]}},
	{"type": "portmap", "capabilities": {"portMappings": true}, "unheardOf": 1},
	{"type": "firewall"},
	{"type": "bandwidth", "ingressRate": 80000000, "ingressBurst": 8000000, "egressRate": 80000000, "egressBurst": 8000000}]}`

// newReferenceSite returns a host with containers that the reference runtime and plugins attached, and the directory of these
// plugins.
func newReferenceSite(t *testing.T, containers ...string) (s *site, bin string) {
	t.Helper()
	host(t)
	bin = filepath.Join(t.TempDir(), "bin")
	must(t, os.Mkdir(bin, 0o755))
	for _, name := range []string{"bridge", "host-local", "portmap", "firewall", "bandwidth"} {
		must(t, os.Symlink(reference.Plugin(t, name), filepath.Join(bin, name)))
	}
	conf := t.TempDir()
	write(t, conf, "n.conflist", theirNetwork)
	s = &site{t, append(os.Environ(), "NETCONFPATH="+conf, "CNI_PATH="+bin), map[string]string{}}
	for i, c := range containers {
		kerneltest.Run(t, "ip", "netns", "add", c)
		s.reference("add", c, `{"portMappings":[{"hostPort":530`+string(rune('0'+i))+`,"containerPort":53,"protocol":"udp"}]}`)
	}
	return s, bin
}

// reference runs the reference runtime.
func (s *site) reference(verb, container, capabilities string) {
	s.Helper()
	cmd := exec.Command(reference.Cnitool(s.TB), verb, "n", netnspath.Dir+"/"+container)
	cmd.Env = append(s.env, "CAP_ARGS="+capabilities)
	if out, err := cmd.CombinedOutput(); err != nil {
		s.Fatalf("%s %s: %v: %s", verb, container, err, out)
	}
}

// from returns a directory with both programs, which are this one.
func from(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	self, err := os.Executable()
	must(t, err)
	raw, err := os.ReadFile(self)
	must(t, err)
	for _, name := range []string{"fairlead", "fairlead-cni"} {
		must(t, os.WriteFile(filepath.Join(dir, name), raw, 0o755))
	}
	return dir
}

// TestSwitch installs over the reference plugins while a packet passes to one of their containers each millisecond. It
// adds a container with our plugins, deletes the old ones, and uninstalls.
func TestSwitch(t *testing.T) {
	t.Parallel()
	s, bin := newReferenceSite(t, "web", "db")
	s.uplink()
	before := kerneltest.Run(t, "ls", "-l", "--time-style=+", bin)
	code, out, errs := s.fairlead("migrate", "--dry-run")
	for _, want := range []string{"unheardOf = 1", "ignored, by the reference plugin too", "ipMasq = true", "changes: a set in the nftables table", "10.1.0.2/24", "5300->53/udp", "would be recorded"} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("migrate --dry-run: exit code %d, no %q in\n%s%s", code, want, out, errs)
		}
	}
	p := probe(t, "up1", "web", "198.51.100.2:5300")
	out = s.ok("install", "--bin-dir", bin, "--from", from(t))
	for _, want := range []string{"replaced " + bin + "/bridge", "created " + bin + "/ptp", "5301->53/udp", "recorded"} {
		if !strings.Contains(out, want) {
			t.Errorf("install: no %q in\n%s", want, out)
		}
	}
	var list []listed
	must(t, json.Unmarshal([]byte(s.ok("list", "--json")), &list))
	if len(list) != 2 || list[0].State != attach.StateOK || list[0].Addresses[0] == list[1].Addresses[0] {
		t.Errorf("list: %+v", list)
	}
	s.ok("check", "n", "web")
	if code, d := s.doctor(); code != 0 {
		t.Errorf("doctor: %+v", d)
	}
	if out := s.ok("repair"); strings.Contains(out, "restored") {
		t.Errorf("repair changes what the reference made: %s", out)
	}
	kerneltest.Run(t, "ip", "netns", "add", "new")
	held := `{"portMappings":[{"hostPort":5300,"containerPort":53,"protocol":"udp"}]}`
	for _, again := range []bool{false, true} {
		if again { // as if migrate was killed before it claimed the ports
			kerneltest.Run(t, "rm", "-r", attach.DefaultRoot+"/hostports")
			s.ok("migrate", "--dry-run")
			if _, err := os.Stat(attach.DefaultRoot + "/hostports"); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("migrate --dry-run claims host ports: %v", err)
			}
			s.ok("migrate")
		}
		if code, _, errs := s.withCaps(held).fairlead("add", "n", "new"); code == 0 || !strings.Contains(errs, "host port 5300/udp on every address is already taken by container ") {
			t.Errorf("a host port that a container of the reference's has, after another migrate: %v: exit code %d, %s", again, code, errs)
		}
	}
	if out := s.withCaps(strings.ReplaceAll(held, "5300", "5309")).ok("add", "n", "new"); strings.Contains(out, "10.1.0.2/24") || strings.Contains(out, "10.1.0.3/24") {
		t.Errorf("an address that a container of the reference's has: %s", out)
	}
	s.ok("del", "n", "db")
	sent, lost := p()
	if lost != 0 || sent < 200 {
		t.Errorf("%d of %d packets were lost in the switch", lost, sent)
	}
	t.Logf("%d packets, %d lost", sent, lost)
	s.ok("del", "n", "new")
	s.ok("del", "n", "web")
	rules := kerneltest.Run(t, "nft", "list", "ruleset")
	for _, left := range []string{"CNI-DN-", "10.1.0.2", "10.1.0.3"} {
		if strings.Contains(rules, left) {
			t.Errorf("%s is left:\n%s", left, rules)
		}
	}
	if links := kerneltest.Run(t, "ip", "-br", "link"); strings.Contains(links, "bwp") || strings.Contains(links, "veth") {
		t.Errorf("links are left:\n%s", links)
	}
	s.withCaps(held).ok("add", "n", "new")
	s.ok("del", "n", "new")
	s.ok("uninstall", "--bin-dir", bin)
	if after := kerneltest.Run(t, "ls", "-l", "--time-style=+", bin); after != before {
		t.Errorf("after uninstall:\n%s\nwant\n%s", after, before)
	}
}

// TestSwitchBack uninstalls while a packet passes each millisecond to a container that our plugins attached. The reference
// plugins then attach another container and delete ours, and a garbage collection removes our rules.
func TestSwitchBack(t *testing.T) {
	t.Parallel()
	s, bin := newReferenceSite(t)
	s.uplink()
	s.ok("install", "--bin-dir", bin, "--from", from(t))
	kerneltest.Run(t, "ip", "netns", "add", "ours")
	held := `{"portMappings":[{"hostPort":5300,"containerPort":53,"protocol":"udp"}]}`
	address := s.withCaps(held).ok("add", "n", "ours")
	p := probe(t, "up1", "ours", "198.51.100.2:5300")
	s.ok("uninstall", "--bin-dir", bin)
	kerneltest.Run(t, "ip", "netns", "add", "theirs")
	s.reference("add", "theirs", `{"portMappings":[{"hostPort":5301,"containerPort":53,"protocol":"udp"}]}`)
	sent, lost := p()
	if lost != 0 || sent < 100 {
		t.Errorf("%d of %d packets were lost", lost, sent)
	}
	if theirs := kerneltest.In(t, netnspath.Dir+"/theirs", "ip", "-br", "address"); !strings.Contains(address, "10.1.0.2/24") || !strings.Contains(theirs, "10.1.0.3/24") {
		t.Errorf("ours has\n%sand theirs has\n%s", address, theirs)
	}
	s.reference("del", "ours", held)
	kerneltest.Run(t, "ip", "netns", "del", "ours")
	s.ok("gc", "--all")
	rules, links := kerneltest.Run(t, "nft", "list", "ruleset"), kerneltest.Run(t, "ip", "-br", "link")
	for _, left := range []string{"10.1.0.2", "5300"} {
		if strings.Contains(rules, left) {
			t.Errorf("%s is left:\n%s", left, rules)
		}
	}
	if !strings.Contains(rules, "5301") || strings.Count(links, "veth") != 1 {
		t.Errorf("the container of the reference plugins is incomplete:\n%s%s", rules, links)
	}
	s.reference("del", "theirs", `{"portMappings":[{"hostPort":5301,"containerPort":53,"protocol":"udp"}]}`)
}

// probe sends a packet each millisecond from the far side of a link to an address of a container, which answers. It
// returns a function that stops and counts.
func probe(t *testing.T, link, container, to string) func() (sent, lost int64) {
	t.Helper()
	kerneltest.Run(t, "ip", "netns", "add", "far")
	kerneltest.Run(t, "ip", "link", "set", link, "netns", "far")
	for _, c := range []string{"addr add 198.51.100.9/24 dev " + link, "link set " + link + " up"} {
		kerneltest.In(t, netnspath.Dir+"/far", append([]string{"ip"}, strings.Fields(c)...)...)
	}
	inside := func(name string, open func() error) {
		ns, err := netns.Open(netnspath.Dir + "/" + name)
		must(t, err)
		defer ns.Close()
		must(t, ns.Do(open))
	}
	inside(container, func() error {
		c, err := net.ListenPacket("udp", ":53")
		if err == nil {
			t.Cleanup(func() { _ = c.Close() })
			go echo(c)
		}
		return err
	})
	var sent, received atomic.Int64
	var conn net.Conn
	inside("far", func() (err error) {
		conn, err = net.Dial("udp", to)
		return err
	})
	t.Cleanup(func() { _ = conn.Close() })
	go func() {
		for b := make([]byte, 16); ; received.Add(1) {
			if _, err := conn.Read(b); err != nil {
				return
			}
		}
	}()
	kerneltest.Eventually(t, func() error { // the neighbours are resolved
		if _, _ = conn.Write([]byte("first")); received.Load() == 0 {
			return errors.New("nobody answers the probe")
		}
		return nil
	})
	time.Sleep(kerneltest.Slow(200 * time.Millisecond))
	received.Store(0)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				_, _ = conn.Write(binary.BigEndian.AppendUint64(nil, uint64(sent.Add(1))))
			}
		}
	}()
	return func() (int64, int64) {
		close(stop)
		<-done
		for end := time.Now().Add(kerneltest.Slow(5 * time.Second)); received.Load() < sent.Load() && time.Now().Before(end); {
			time.Sleep(20 * time.Millisecond)
		}
		return sent.Load(), sent.Load() - received.Load()
	}
}

func echo(c net.PacketConn) {
	for b := make([]byte, 64); ; {
		n, peer, err := c.ReadFrom(b)
		if err != nil {
			return
		}
		_, _ = c.WriteTo(b[:n], peer)
	}
}

// TestOthersCopyTheirPlugins does what the DaemonSets of flannel and of whereabouts do after an installation. Only their
// own plugins change, and a later uninstall leaves those files to them.
func TestOthersCopyTheirPlugins(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	bin, theirs := t.TempDir(), filepath.Join(t.TempDir(), "theirs")
	must(t, os.WriteFile(theirs, []byte("their plugin"), 0o755))
	s.ok("install", "--bin-dir", bin, "--from", from(t), "--no-migrate")
	before := kerneltest.Run(t, "sha256sum", bin+"/fairlead-cni", bin+"/bridge")
	for _, name := range []string{"flannel", "whereabouts"} {
		if v, err := exec.Command(bin + "/" + name).CombinedOutput(); err != nil || !strings.HasPrefix(string(v), "CNI "+name+" plugin") {
			t.Errorf("the plugin %s printed %q: %v", name, v, err)
		}
		kerneltest.Run(t, "cp", "-f", theirs, bin+"/"+name)
		if after := kerneltest.Run(t, "sha256sum", bin+"/fairlead-cni", bin+"/bridge"); after != before {
			t.Errorf("%s: other plugins changed:\n%s\n%s", name, before, after)
		}
	}
	s.ok("uninstall", "--bin-dir", bin)
	if left := kerneltest.Run(t, "ls", bin); strings.TrimSpace(left) != "flannel\nwhereabouts" {
		t.Errorf("left: %s", left)
	}
}
