package crash

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/internal/plugintest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// machine is a host with one container, and later a second one. A scene is played in it repeatedly.
type machine struct {
	*kerneltest.Machine
	s                *scene
	netns            string // of the container that is attached
	host             *dumper
	containers       []*observer // of the container, and of the other one while it is attached
	in, out          *os.File
	replace          *strings.Replacer
	other            *otherContainer // nil while the machine has one container
	extra            func() string   // more state to compare
	store            store.Store     // the store of the scene's agent
	waitIdle         func()          // waits until no background work is pending
	cleanSnapshot    string          // the snapshot after an ADD and its DEL: see sharedLines
	cleanFingerprint string          // the fingerprint of the same state
	mismatches       int             // how often the fingerprints differed
	id               string          // the container's ID
}

// container is the ID of the attached container, and nextContainer the ID of a container after a reboot.
const (
	container     = "a"
	nextContainer = "b"
)

func newMachine(t testing.TB, s *scene) *machine {
	t.Helper()
	m := &machine{Machine: kerneltest.NewMachine(t, container), s: s, id: container, waitIdle: func() {}}
	m.netns = m.Netns[container]
	var err error
	if m.host, err = newDumper(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.host.close)
	m.observe(m.netns)
	m.in, m.out = m.open("stdin", 0), m.open("stdout", os.O_APPEND)
	m.Link(testProgram, plugintest.Names()...)
	socket := ""
	if s.prepare != nil {
		socket = s.prepare(m)
	}
	m.replace = strings.NewReplacer("$WORK", m.Dir, "$NETNS", m.netns)
	m.replace = strings.NewReplacer("$IPAM", m.replace.Replace(hostLocal), "$PREV", m.replace.Replace(prevResult), "$WORK", m.Dir, "$NETNS", m.netns, "$SOCKET", socket)
	m.setUp()
	return m
}

// open opens a file that a program gets in place of a pipe to its runtime.
func (m *machine) open(name string, flags int) *os.File {
	m.T.Helper()
	f, err := os.OpenFile(filepath.Join(m.Dir, name), os.O_RDWR|os.O_CREATE|flags, 0o600)
	if err != nil {
		m.T.Fatal(err)
	}
	m.T.Cleanup(func() { _ = f.Close() })
	return f
}

// setUp creates the scene's prerequisites. It compares the state after an ADD and its DEL with the state before, and
// records it.
func (m *machine) setUp() {
	m.T.Helper()
	m.command("ip link add dev0 address 02:00:00:00:00:05 type veth peer name far0 address 02:00:00:00:00:06")
	m.command("ip link set dev0 up")
	m.command("ip link set far0 up")
	if m.s.chained {
		m.command("ip link add host0 address 02:00:00:00:00:07 type veth peer name eth0 address 02:00:00:00:00:08 netns " + m.netns)
		m.command("ip addr add 10.1.0.1/24 dev host0")
		m.command("ip link set host0 up")
		m.addressed(m.netns, "10.1.0.2/24", "fd01::2/64")
	}
	for _, c := range m.s.setup {
		m.command(m.replace.Replace(c))
	}
	must(m.T, os.WriteFile(m.file(), []byte(m.conf()), 0o600))
	before := m.snapshot()
	m.recordClean()
	if d := unexpected(kerneltest.Diff(before, m.cleanSnapshot)); d != "" {
		m.T.Fatalf("%s: a normal ADD and DEL leave something:\n%s", m.s.name, d)
	}
}

// addressed gives a container's eth0 addresses and a default route, as the plugins before a chained one do.
func (m *machine) addressed(netns string, addresses ...string) {
	m.T.Helper()
	commands := []string{"link set lo up", "link set eth0 up", "route add default via 10.1.0.1"}
	for _, a := range addresses {
		commands = slices.Insert(commands, 1, "addr add "+a+" dev eth0 nodad")
	}
	for _, c := range commands {
		m.command("nsenter --net=" + netns + " ip " + c)
	}
	kerneltest.Until(m.T, func() bool { // the kernel uses IPv6 addresses once the link is ready, which may be later
		local := kerneltest.In(m.T, netns, "ip", "-6", "route", "show", "table", "local", "dev", "eth0")
		return !slices.ContainsFunc(addresses, func(a string) bool {
			ip, _, _ := strings.Cut(a, "/")
			return strings.Contains(ip, ":") && !strings.Contains(local, ip)
		})
	})
}

// recordClean records the state after an ADD and its DEL, when it no longer changes.
func (m *machine) recordClean() {
	m.T.Helper()
	m.must("ADD")
	m.must("DEL")
	for range 20 {
		m.must("ADD")
		m.must("DEL")
		previous := m.cleanFingerprint
		if m.cleanFingerprint = m.fingerprint(); m.cleanFingerprint == previous {
			m.cleanSnapshot = m.snapshot()
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	m.T.Fatalf("%s: the state after DEL keeps changing", m.s.name)
}

func (m *machine) command(line string) {
	m.T.Helper()
	argv := strings.Fields(line)
	kerneltest.Run(m.T, argv...)
}

func (m *machine) conf() string {
	if m.id == otherID {
		return m.replace.Replace(m.other.replace.Replace(m.s.conf))
	}
	return m.replace.Replace(m.s.conf)
}

// file returns the path where a runtime finds the configuration.
func (m *machine) file() string {
	if strings.Contains(m.s.conf, `"plugins"`) {
		return filepath.Join(m.Dir, m.id+".conflist")
	}
	return filepath.Join(m.Dir, m.id+".conf")
}

// request returns the program of an operation.
func (m *machine) request(verb string, result string) program {
	args, netns := m.s.args, m.netns
	if m.id == otherID {
		args, netns = m.other.replace.Replace(args), m.other.netns
	}
	env := m.Env("CAP_ARGS=" + args)
	conf := m.conf()
	name, argv := m.s.program(), []string(nil)
	if m.s.runtime() {
		name, argv = plugintest.Runtime, []string{strings.ToLower(verb), m.file(), "NS"}
		env = append(env, "NS="+netns, "CONTAINER="+m.id)
		if m.s.fused {
			env = append(env, "LIST_MODE=fused")
		}
	} else {
		env = append(env, "CNI_COMMAND="+verb, "CNI_CONTAINERID="+m.id, "CNI_NETNS="+netns, "CNI_IFNAME=eth0")
		conf = requestConfig(conf, verb, result, m.validAttachments())
	}
	_ = m.in.Truncate(0)
	_ = m.out.Truncate(0)
	_, _ = m.in.WriteAt([]byte(conf), 0)
	_, _ = m.in.Seek(0, 0)
	return program{path: filepath.Join(m.Bin(), name), argv: append([]string{name}, argv...), env: env, in: m.in, out: m.out}
}

// requestConfig returns the configuration with the keys that a runtime adds for an operation.
func requestConfig(conf, verb, result, valid string) string {
	switch {
	case verb == "GC":
		return strings.Replace(conf, "{", `{"cni.dev/valid-attachments": `+valid+`, `, 1)
	case result != "":
		return strings.Replace(conf, "{", `{"prevResult": `+result+`, `, 1)
	}
	return conf
}

// output returns the program's output.
func (m *machine) output() string {
	raw, err := os.ReadFile(m.out.Name())
	if err != nil {
		m.T.Fatal(err)
	}
	return string(raw)
}

// run runs an operation, untraced.
func (m *machine) run(verb, result string) (string, error) {
	p := m.request(verb, result)
	cmd := &exec.Cmd{Path: p.path, Args: p.argv, Env: p.env, Stdin: p.in, Stdout: p.out, Stderr: p.out}
	err := cmd.Run()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", verb, err, m.output())
	}
	return m.output(), err
}

func (m *machine) must(verb string) string {
	m.T.Helper()
	out, err := m.run(verb, "")
	if err != nil {
		m.T.Fatalf("%s: %v", m.s.name, err)
	}
	return out
}

// snapshot returns the machine's whole state as text.
func (m *machine) snapshot() string {
	m.waitIdle()
	s := "host\n" + namespace()
	for _, c := range m.containers {
		c.do(func() { s += "container\n" + namespace() })
	}
	s += m.Files(stateDirs...)
	if m.extra != nil {
		s += m.extra()
	}
	return s
}

// fingerprint returns the fast form of the snapshot.
func (m *machine) fingerprint() string {
	m.T.Helper()
	m.waitIdle()
	s, err := m.host.fingerprint()
	for _, c := range m.containers {
		c.do(func() {
			more, e := c.dumper.fingerprint()
			s, err = s+more, errors.Join(err, e)
		})
	}
	if err != nil {
		m.T.Fatal(err)
	}
	s += m.Files(stateDirs...)
	if m.extra != nil {
		s += m.extra()
	}
	return s
}

// leftovers returns the difference from the clean state, after background work has ended.
func (m *machine) leftovers() (d string) {
	if m.fingerprint() == m.cleanFingerprint {
		return ""
	}
	m.mismatches++
	for wait := time.Millisecond; wait < kerneltest.Slow(2*time.Second); wait *= 4 {
		if d = kerneltest.Diff(m.cleanSnapshot, m.snapshot()); d == "" {
			return ""
		}
		time.Sleep(wait)
	}
	return d
}
