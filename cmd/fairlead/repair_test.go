package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/netnspath"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// site is a host of a test with the network and containers of the main example, attached by the plugins.
type site struct {
	testing.TB
	env  []string
	ends map[string]string // names of the containers' links on the host
}

const siteNetwork = `{"cniVersion": "1.1.0", "name": "n", "plugins": [
	{"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true, "hairpinMode": true, "enabledad": false,
	 "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd00:1::/64"}]], "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}},
	{"type": "portmap", "capabilities": {"portMappings": true}, "snat": true},
	{"type": "bandwidth", "ingressRate": 8000000, "ingressBurst": 800000, "egressRate": 8000000, "egressBurst": 800000},
	{"type": "firewall"},
	{"type": "tuning", "sysctl": {"net.core.somaxconn": "500"}, "mtu": 1400}]}`

func newSite(t testing.TB, containers ...string) *site {
	t.Helper()
	return newSiteOf(t, siteNetwork, containers...)
}

func newSiteOf(t testing.TB, network string, containers ...string) *site {
	t.Helper()
	host(t)
	dir := t.TempDir()
	write(t, dir, "n.conflist", network)
	s := &site{t, append(os.Environ(), "NETCONFPATH="+dir, "CNI_PATH="+filepath.SplitList(os.Getenv("PATH"))[0]), map[string]string{}}
	for i, c := range containers {
		kerneltest.Run(t, "ip", "netns", "add", c)
		port := string(rune('0' + i))
		s.withCaps(`{"portMappings":[{"hostPort":808`+port+`,"containerPort":80,"protocol":"tcp"},{"hostPort":530`+port+`,"containerPort":53,"protocol":"udp"}]}`).ok("add", "n", c)
	}
	return s
}

func (s *site) withCaps(caps string) *site {
	return &site{s.TB, append(slices.Clone(s.env), "CAP_ARGS="+caps), s.ends}
}

// fairlead runs the program as a process.
func (s *site) fairlead(argv ...string) (code int, stdout, stderr string) {
	s.Helper()
	cmd := exec.Command("fairlead", argv...)
	cmd.Env = s.env
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), out.String(), errs.String()
	}
	must(s, err)
	return 0, out.String(), errs.String()
}

func (s *site) ok(argv ...string) string {
	s.Helper()
	code, out, errs := s.fairlead(argv...)
	if code != 0 {
		s.Fatalf("fairlead %s: exit code %d\n%s%s", strings.Join(argv, " "), code, out, errs)
	}
	return out
}

// noRecords checks that no attachment has a record.
func (s *site) noRecords() {
	s.Helper()
	if files := kerneltest.Run(s, "find", "/run/fairlead/attach", "-type", "f"); files != "" {
		s.Errorf("files remain: %s", files)
	}
}

// sh runs commands, one a line. The first word "web" runs the command in that container.
func (s *site) sh(script string) {
	s.Helper()
	for l := range strings.Lines(script) {
		argv := words(strings.TrimSpace(l))
		if len(argv) == 0 {
			continue
		}
		if argv[0] == "bridge" { // the test's PATH has the plugin bridge
			argv[0] = "/sbin/bridge"
		}
		if _, err := os.Stat(netnspath.Dir + "/" + argv[0]); err == nil {
			argv = append([]string{"nsenter", "--net=" + netnspath.Dir + "/" + argv[0], "--"}, argv[1:]...)
		}
		kerneltest.Run(s, argv...)
	}
}

// words splits a command line. A quoted text is one word.
func words(line string) (out []string) {
	word, open, any := "", rune(0), false
	for _, c := range line {
		switch {
		case open != 0 && c == open:
			open = 0
		case open == 0 && (c == '\'' || c == '"'):
			open, any = c, true
		case open == 0 && (c == ' ' || c == '\t'):
			if word != "" || any {
				out = append(out, word)
			}
			word, any = "", false
		default:
			word += string(c)
		}
	}
	if word != "" || any {
		out = append(out, word)
	}
	return out
}

// hostEnd returns the host's end of a container's interface.
func (s *site) hostEnd(container string) string {
	s.Helper()
	if s.ends[container] != "" {
		return s.ends[container]
	}
	for l := range strings.Lines(kerneltest.Run(s, "ip", "-o", "link", "show", "type", "veth")) {
		if strings.Contains(l, containerID(netnspath.Dir+"/"+container)) {
			s.ends[container], _, _ = strings.Cut(strings.Fields(l)[1], "@")
			return s.ends[container]
		}
	}
	s.Fatalf("%s has no end on the host", container)
	return ""
}

// dump returns everything that a repair may change.
func (s *site) dump() string { return s.settled(s.dumpNow) }

// settled returns a text once it no longer changes: carriers follow their links, and namespaces end, with a delay.
func (s *site) settled(now func() string) string {
	text := now()
	for range 20 {
		time.Sleep(kerneltest.Slow(60 * time.Millisecond))
		again := now()
		if again == text {
			break
		}
		text = again
	}
	return text
}

func (s *site) dumpNow() string {
	text := ""
	for _, ns := range []string{"", netnspath.Dir + "/web", netnspath.Dir + "/db"} {
		text += kerneltest.Dump(s, ns)
		argv := []string{"tc", "filter", "show", "dev", "eth0"}
		if ns == "" {
			argv = []string{"tc", "filter", "show", "dev", s.hostEnd("web"), "parent", "ffff:"}
		} else {
			argv = append([]string{"nsenter", "--net=" + ns, "--"}, argv...)
		}
		text += kerneltest.Run(s, argv...)
	}
	return normal(text + kerneltest.Run(s, "sysctl", "net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"))
}

// breaks returns scripts that damage an attachment, like a firewall reload or a mistake of the administrator. VETH is
// the host end of the container web.
func breaks() map[string]string {
	return map[string]string{
		"ruleset flushed":       "nft flush ruleset",
		"table deleted":         "nft delete table inet fairlead",
		"rules flushed":         "nft flush table inet fairlead",
		"base chain flushed":    "nft flush chain inet fairlead postrouting",
		"masquerade lost":       "nft flush set inet fairlead masq-n-10.1.0.0/24",
		"host ports lost":       "nft flush map inet fairlead hostports-any4",
		"interface down":        "web ip link set eth0 down",
		"host end down":         "ip link set VETH down",
		"bridge down":           "ip link set cni0 down",
		"bridge deleted":        "ip link del cni0",
		"port off its bridge":   "ip link set VETH nomaster",
		"hairpin off":           "bridge link set dev VETH hairpin off",
		"address removed":       "web ip addr flush dev eth0 scope global",
		"v6 address removed":    "web ip -6 addr flush dev eth0 scope global",
		"default route gone":    "web ip route del default",
		"all routes gone":       "web ip route flush table main\nweb ip -6 route del default",
		"gateway address gone":  "ip addr del 10.1.0.1/24 dev cni0",
		"forwarding off":        "sysctl -qw net.ipv4.ip_forward=0",
		"v6 forwarding off":     "sysctl -qw net.ipv6.conf.all.forwarding=0",
		"container's sysctl":    "web sysctl -qw net.core.somaxconn=10",
		"mtu changed":           "web ip link set eth0 mtu 1500",
		"queue deleted":         "tc qdisc del dev VETH root",
		"queue's rate changed":  "tc qdisc replace dev VETH root tbf rate 1mbit burst 10000 limit 20000",
		"another queue":         "tc qdisc replace dev VETH root pfifo limit 10",
		"ingress queue deleted": "tc qdisc del dev VETH ingress",
		"ifb deleted":           "ip link del IFB",
		"ifb down":              "ip link set IFB down",
		"port switched off":     "bridge link set dev VETH state 0",
		"alias removed":         "ip link set VETH alias stranger",
		"everything at once": "nft flush ruleset\nip link set VETH nomaster\nip link set cni0 down\nip link del IFB\nsysctl -qw net.ipv4.ip_forward=0\n" +
			"web ip addr flush dev eth0 scope global\nweb ip link set eth0 down",
	}
}

// TestRepair breaks a healthy host in each way, and repairs it.
func TestRepair(t *testing.T) {
	t.Parallel()
	for name, script := range breaks() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, "web", "db")
			s.brokenAndRepaired(script)
		})
	}
}

// TestRepairPins verifies that the rules of antiSpoof return in their order, with the addresses.
func TestRepairPins(t *testing.T) {
	t.Parallel()
	pinned := strings.Replace(siteNetwork, `"isGateway": true`, `"isGateway": true, "antiSpoof": true`, 1)
	for name, script := range map[string]string{
		"table deleted":       "nft delete table bridge fairlead",
		"addresses lost":      "nft flush set bridge fairlead antispoof-v4\nnft flush set bridge fairlead antispoof-nd",
		"rules of IPv6 lost":  "nft flush chain bridge fairlead antispoof-ip6",
		"ports not looked at": "nft flush chain bridge fairlead prerouting",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kerneltest.Needs(t, "nftables for bridges")
			newSiteOf(t, pinned, "web", "db").brokenAndRepaired(script)
		})
	}
}

func (s *site) brokenAndRepaired(script string) {
	s.Helper()
	healthy := s.dump()
	s.sh(s.names(script))
	broken := s.dump()
	code, plan, errs := s.fairlead("repair", "--dry-run", "--json")
	if code != exitWrong || errs != "" || s.dump() != broken {
		s.Fatalf("dry run: exit code %d, %s\n%s%s", code, errs, plan, kerneltest.Diff(broken, s.dump()))
	}
	out := s.ok("repair")
	if now := s.dump(); now != healthy {
		s.Errorf("the state differs from before:\n%s\noutput of repair:\n%s", kerneltest.Diff(healthy, now), out)
	}
	if again := s.ok("repair"); strings.Count(again, "nothing to do") != 2 {
		s.Errorf("the second repair:\n%sthe first:\n%s", again, out)
	}
	s.ok("check", "n", "web")
	s.ok("check", "n", "db")
}

// TestRepairHealthy verifies that a repair of a healthy host writes nothing.
func TestRepairHealthy(t *testing.T) {
	t.Parallel()
	s := newSite(t, "web", "db")
	before, handles := s.dump(), kerneltest.Run(t, "nft", "-a", "list", "ruleset")
	monitor := s.monitor()
	if out := s.ok("repair"); strings.Count(out, "nothing to do") != 2 {
		t.Errorf("of a healthy host:\n%s", out)
	}
	for args, want := range map[string]string{
		"--container nobody":     "there is no attachment of a container nobody\nType: fairlead list",
		"--network x":            "there is no attachment to a network x\n",
		"--container= --json":    "--container is empty",
		"--network=":             "--network is empty",
		"--container= --dry-run": "--container is empty",
	} {
		if code, out, errs := s.fairlead(append([]string{"repair"}, strings.Fields(args)...)...); code != exitFailed && code != exitUsage || !strings.Contains(errs, want) || out != "" {
			t.Errorf("%s: exit code %d: %s%s", args, code, out, errs)
		}
	}
	if out := s.ok("repair", "--json", "--network", "n", "--container", "web"); strings.Count(out, `"restored": []`) != 1 {
		t.Errorf("of one container:\n%s", out)
	}
	if now := s.dump(); now != before || kerneltest.Run(t, "nft", "-a", "list", "ruleset") != handles {
		t.Errorf("changed:\n%s", kerneltest.Diff(before, now))
	}
	if events := monitor(); events != "" {
		t.Errorf("written:\n%s", events)
	}
}

// forwardDelay is a bridge's default. So long after it enabled a port, the kernel reports the port once more, without a
// spanning tree, too.
const forwardDelay = 15 * time.Second

// monitor records changes of links, addresses, routes and the ruleset, until the caller calls end. It starts when the
// new links are up, which follows later, the forward delay of their ports is over, and the kernel has reported nothing for
// a second.
func (s *site) monitor() (end func() string) {
	kerneltest.Until(s, func() bool {
		links := strings.TrimSpace(kerneltest.Run(s, "ip", "-br", "link", "show", "type", "veth"))
		return strings.Count(links, " UP ") == strings.Count(links, "\n")+1
	})
	file, err := os.Create(filepath.Join(s.TempDir(), "events"))
	must(s, err)
	defer file.Close()
	seen := 0
	events := func() string { // since the last call
		raw, err := os.ReadFile(file.Name())
		must(s, err)
		before := seen
		seen = len(raw)
		return string(raw[before:])
	}
	var cmds []*exec.Cmd
	for _, argv := range [][]string{{"ip", "monitor", "link", "address", "route", "rule"}, {"nft", "monitor"}} {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Stdout = file
		must(s, cmd.Start())
		cmds = append(cmds, cmd)
	}
	time.Sleep(forwardDelay)
	for deadline := time.Now().Add(kerneltest.Slow(30 * time.Second)); ; {
		before := events()
		time.Sleep(kerneltest.Slow(time.Second))
		if before == "" && events() == "" || time.Now().After(deadline) {
			break
		}
	}
	return func() string {
		time.Sleep(kerneltest.Slow(100 * time.Millisecond)) // wait for the last events
		for _, cmd := range cmds {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		return events()
	}
}

// TestRepairLost verifies that repair reports what only an ADD can create, and what to do.
func TestRepairLost(t *testing.T) {
	t.Parallel()
	s := newSite(t, "web", "db")
	s.sh("web ip link del eth0\nnft flush ruleset")
	code, out, _ := s.fairlead("repair")
	if code != exitWrong || !strings.Contains(out, "eth0 is gone, and only an ADD makes it: the runtime has to DEL and ADD the container again") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	if n := strings.Count(out, "cannot restore"); n != 1 {
		t.Errorf("%d things cannot be restored: what went with the interface is named, too\n%s", n, out)
	}
	s.ok("check", "n", "db")
	kerneltest.Run(t, "ip", "netns", "del", "web")
	if out := s.ok("repair"); !strings.Contains(out, "n web eth0: skipped: namespace gone (fairlead gc --all removes it)") {
		t.Errorf("of a namespace that is gone:\n%s", out)
	}
}

// names replaces the names of the container web's links in commands.
func (s *site) names(script string) string {
	if strings.Contains(script, "VETH") {
		script = strings.ReplaceAll(script, "VETH", s.hostEnd("web"))
	}
	if strings.Contains(script, "IFB") {
		out := kerneltest.Run(s, "tc", "filter", "show", "dev", s.hostEnd("web"), "parent", "ffff:")
		_, out, _ = strings.Cut(out, "to device ")
		name, _, _ := strings.Cut(out, ")")
		script = strings.ReplaceAll(script, "IFB", name)
	}
	return script
}

// normal removes from a dump what differs between two equal links, and packet counters.
func normal(dump string) string {
	dump = kerneltest.Mask(dump, kerneltest.Numbers, kerneltest.Timers, kerneltest.Counters)
	for _, r := range []struct{ pattern, by string }{
		{`port_(id|no) 0x[0-9a-f]+|designated_port \d+|fdb_n_learned \d+`, ""},
		{`\b(index|ref|bind|parentbus|numtxqueues) \d+`, ""}, {` +`, " "}, {`filter .* fh `, "filter fh "},
	} {
		dump = regexp.MustCompile(r.pattern).ReplaceAllString(dump, r.by)
	}
	part, out := "", []string{}
	for l := range strings.Lines(strings.NewReplacer(", ", "\n", "elements = { ", "\n", " }\n", "\n").Replace(dump)) {
		l = strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(l), ","))
		if strings.HasPrefix(l, "# ") {
			part = l
		}
		if !strings.HasPrefix(l, "anycast ") && !strings.Contains(l, "fe80::") { // the kernel adds these later
			out = append(out, part+": "+l)
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}
