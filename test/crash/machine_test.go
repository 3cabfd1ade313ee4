package crash

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// machine is a host with one container. A scene is played in it repeatedly.
type machine struct {
	t                testing.TB
	s                *scene
	work             string
	netns            string
	inContainer      *netnsThread
	dumpers          [2]*dumper // for the host and the container
	in, out          *os.File
	replace          *strings.Replacer
	extra            func() string // more state to compare
	store            store.Store   // the store of the scene's agent
	waitIdle         func()        // waits until no background work is pending
	cleanSnapshot    string        // the snapshot after an ADD and its DEL
	cleanFingerprint string        // the fingerprint of the same state
	mismatches       int           // how often the fingerprints differed
	id               string        // the container's ID
}

// container is the ID of the attached container, and nextContainer the ID of a container after a reboot.
const (
	container     = "a"
	nextContainer = "b"
)

func newMachine(t testing.TB, s *scene) *machine {
	t.Helper()
	kerneltest.Host(t)
	work, err := os.MkdirTemp("", "crash-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(work) })
	m := &machine{t: t, s: s, work: work, id: container, netns: kerneltest.Netns(t), waitIdle: func() {}}
	if m.inContainer, err = newNetnsThread(m.netns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.inContainer.close)
	m.dumpers[0], err = newDumper()
	m.inContainer.do(func() {
		d, e := newDumper()
		m.dumpers[1], err = d, errors.Join(err, e)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.dumpers[0].close(); m.dumpers[1].close() })
	m.in, m.out = m.open("stdin", 0), m.open("stdout", os.O_APPEND)
	m.programs()
	socket := ""
	if s.prepare != nil {
		socket = s.prepare(m)
	}
	m.replace = strings.NewReplacer("$WORK", work, "$NETNS", m.netns)
	m.replace = strings.NewReplacer("$IPAM", m.replace.Replace(hostLocal), "$PREV", m.replace.Replace(prevResult), "$WORK", work, "$NETNS", m.netns, "$SOCKET", socket)
	m.setUp()
	return m
}

// open opens a file that a program gets in place of a pipe to its runtime.
func (m *machine) open(name string, flags int) *os.File {
	m.t.Helper()
	f, err := os.OpenFile(filepath.Join(m.work, name), os.O_RDWR|os.O_CREATE|flags, 0o600)
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { _ = f.Close() })
	return f
}

// programs links this program into a directory under every plugin's name.
func (m *machine) programs() {
	dir := filepath.Join(m.work, "bin")
	if err := os.Mkdir(dir, 0o755); err != nil {
		m.t.Fatal(err)
	}
	names := []string{"cni", "daemon"}
	for _, p := range allPlugins() {
		names = append(names, p.Name)
	}
	for _, n := range names {
		if err := os.Symlink(self(), filepath.Join(dir, n)); err != nil {
			m.t.Fatal(err)
		}
	}
}

// setUp creates the scene's prerequisites and records the state after an ADD and its DEL.
func (m *machine) setUp() {
	m.t.Helper()
	m.command("ip link add dev0 address 02:00:00:00:00:05 type veth peer name far0 address 02:00:00:00:00:06")
	m.command("ip link set dev0 up")
	m.command("ip link set far0 up")
	if m.s.chained {
		m.command("ip link add host0 address 02:00:00:00:00:07 type veth peer name eth0 address 02:00:00:00:00:08 netns " + m.netns)
		m.command("ip addr add 10.1.0.1/24 dev host0")
		m.command("ip link set host0 up")
		for _, c := range []string{"link set lo up", "addr add 10.1.0.2/24 dev eth0", "addr add fd01::2/64 dev eth0 nodad", "link set eth0 up", "route add default via 10.1.0.1"} {
			m.command("nsenter --net=" + m.netns + " ip " + c)
		}
	}
	for _, c := range m.s.setup {
		m.command(m.replace.Replace(c))
	}
	if err := os.WriteFile(m.file(), []byte(m.conf()), 0o600); err != nil {
		m.t.Fatal(err)
	}
	m.must("ADD")
	m.must("DEL")
	for range 20 {
		m.must("ADD")
		m.must("DEL")
		previous := m.cleanSnapshot
		if m.cleanSnapshot = m.snapshot(); m.cleanSnapshot == previous {
			m.cleanFingerprint = m.fingerprint()
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	m.t.Fatalf("%s: the state after DEL keeps changing", m.s.name)
}

func (m *machine) command(line string) {
	m.t.Helper()
	argv := strings.Fields(line)
	kerneltest.Run(m.t, argv...)
}

func (m *machine) conf() string { return m.replace.Replace(m.s.conf) }

// file returns the path where a runtime finds the configuration.
func (m *machine) file() string {
	if strings.Contains(m.s.conf, `"plugins"`) {
		return filepath.Join(m.work, "net.conflist")
	}
	return filepath.Join(m.work, "net.conf")
}

// run runs an operation without tracing it.
func (m *machine) request(verb string, result string) program {
	env := append(os.Environ(), "FAIRLEAD_RUN="+m.work+"/run", "FAIRLEAD_LIB="+m.work+"/lib", "CNI_PATH="+m.work+"/bin", "WORK="+m.work, "CAP_ARGS="+m.s.args)
	conf := m.conf()
	name, argv := m.s.program(), []string(nil)
	if m.s.runtime() {
		name, argv = "cni", []string{verb, m.file(), m.id, m.netns}
		if m.s.fused {
			env = append(env, "FUSED=1")
		}
	} else {
		env = append(env, "CNI_COMMAND="+verb, "CNI_CONTAINERID="+m.id, "CNI_NETNS="+m.netns, "CNI_IFNAME=eth0")
		conf = requestConfig(conf, verb, result)
	}
	_ = m.in.Truncate(0)
	_ = m.out.Truncate(0)
	_, _ = m.in.WriteAt([]byte(conf), 0)
	_, _ = m.in.Seek(0, 0)
	return program{path: filepath.Join(m.work, "bin", name), argv: append([]string{name}, argv...), env: env, in: m.in, out: m.out}
}

// requestConfig returns the configuration with the keys that a runtime adds for an operation.
func requestConfig(conf, verb, result string) string {
	switch {
	case verb == "GC":
		return strings.Replace(conf, "{", `{"cni.dev/valid-attachments": [], `, 1)
	case result != "":
		return strings.Replace(conf, "{", `{"prevResult": `+result+`, `, 1)
	}
	return conf
}

// output returns the program's output.
func (m *machine) output() string {
	raw, err := os.ReadFile(m.out.Name())
	if err != nil {
		m.t.Fatal(err)
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
	m.t.Helper()
	out, err := m.run(verb, "")
	if err != nil {
		m.t.Fatalf("%s: %v", m.s.name, err)
	}
	return out
}

// snapshot returns the machine's whole state as text.
func (m *machine) snapshot() string {
	m.waitIdle()
	s := "host\n" + namespace()
	m.inContainer.do(func() { s += "container\n" + namespace() })
	s += files(m.work)
	if m.extra != nil {
		s += m.extra()
	}
	return removeVolatile(s)
}

// fingerprint returns the fast form of the snapshot.
func (m *machine) fingerprint() string {
	m.t.Helper()
	m.waitIdle()
	s, err := m.dumpers[0].fingerprint()
	m.inContainer.do(func() {
		more, e := m.dumpers[1].fingerprint()
		s, err = s+more, errors.Join(err, e)
	})
	if err != nil {
		m.t.Fatal(err)
	}
	s += files(m.work)
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
	for wait := time.Millisecond; wait < 2*time.Second; wait *= 4 {
		if d = difference(m.cleanSnapshot, m.snapshot()); d == "" {
			return ""
		}
		time.Sleep(wait)
	}
	return d
}

// allocated returns the number of allocated addresses in the address directory.
func (m *machine) allocated() (n int) {
	for _, root := range []string{"ipam", "lib/networks", "lib/fairlead/addresses"} {
		_ = filepath.WalkDir(filepath.Join(m.work, root), func(path string, e os.DirEntry, err error) error {
			if _, bad := netip.ParseAddr(filepath.Base(path)); err == nil && bad == nil {
				n++
			}
			return nil
		})
	}
	return n
}

// addresses returns the number of addresses in a result.
func addresses(result string) int {
	var r struct {
		IPs []any
		IP4 any
		IP6 any
	}
	_ = json.Unmarshal([]byte(result), &r)
	n := len(r.IPs)
	for _, ip := range []any{r.IP4, r.IP6} {
		if ip != nil {
			n++
		}
	}
	return n
}
