package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/examples"
	"github.com/fairlead/fairlead/internal/netconf"
	"github.com/fairlead/fairlead/kernel"
)

func TestPluginPath(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if got := pluginDirsOf(filepath.Join(dir, "fairlead")); !slices.Equal(got, []string{defaultPluginPath}) {
		t.Errorf("without cni/ next to the program: %s", got)
	}
	write(t, dir, "cni/bridge", "")
	if got := pluginDirsOf(filepath.Join(dir, "fairlead")); !slices.Equal(got, []string{filepath.Join(dir, "cni"), defaultPluginPath}) {
		t.Errorf("with cni/ next to the program: %s", got)
	}
	a := &app{getenv: func(string) string { return "/a:/b" }}
	if got := a.pluginPath(); !slices.Equal(got, []string{"/a", "/b"}) {
		t.Errorf("CNI_PATH: %q", got)
	}
}

// TestRuntimePluginPath checks where runtimes look: not in the directory of a package's own plugins.
func TestRuntimePluginPath(t *testing.T) {
	t.Parallel()
	for path, want := range map[string][]string{"": {defaultPluginPath}, "/a:/b": {"/a", "/b"}} {
		a := &app{getenv: func(string) string { return path }}
		if got := a.runtimePluginPath(); !slices.Equal(got, want) {
			t.Errorf("CNI_PATH=%s: %q", path, got)
		}
	}
}

// TestAgeAfterClockStep checks that an attachment's age does not depend on the wall clock.
func TestAgeAfterClockStep(t *testing.T) {
	t.Parallel()
	for _, created := range []time.Time{{}, time.Now().Add(time.Hour)} {
		if l := describe(&attach.Record{Created: created, Since: kernel.Uptime() - 90*time.Second}); l.Age != 90 {
			t.Errorf("created at %v: %d seconds old", created, l.Age)
		}
	}
}

// TestUnitsSeeNamespaces checks that the units that collect or repair do not hide directories that may have namespaces: one
// that they do not see counts as gone.
func TestUnitsSeeNamespaces(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"gc", "repair"} {
		raw, err := os.ReadFile("../../contrib/systemd/fairlead-" + name + ".service")
		must(t, err)
		if bytes.Contains(raw, []byte("PrivateTmp=")) {
			t.Errorf("fairlead-%s.service hides /tmp", name)
		}
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	must(t, table{{"A", "LONG"}, {"äöü", ""}, {"", "x"}}.print(&b))
	if want := "A    LONG\näöü  -\n-    x\n"; b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}

func TestFormat(t *testing.T) {
	t.Parallel()
	for seconds, want := range map[int]string{0: "0s", 119: "119s", 120: "2m", 7200: "2h", 2 * 86400: "2d"} {
		if got := age(seconds); got != want {
			t.Errorf("age %d: %s, want %s", seconds, got, want)
		}
	}
	for d, want := range map[time.Duration]string{42 * time.Microsecond: "0.04 ms", 1500 * time.Microsecond: "1.5 ms", time.Second: "1000.0 ms"} {
		if got := milliseconds(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
	list := []attach.Port{
		{HostPort: 80, ContainerPort: 8080, Protocol: "tcp"}, {HostIP: "0.0.0.0", HostPort: 1, ContainerPort: 2, Protocol: "udp"},
		{HostIP: "fd00::1", HostPort: 53, ContainerPort: 53, Protocol: "udp"},
	}
	if got, want := ports(list), "80->8080/tcp, 1->2/udp, [fd00::1]:53->53/udp"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestListStates lists one record of each state.
func TestListStates(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	dir := attach.Open(root)
	for name, part := range map[string]attach.Part{
		"done": {Plugin: "bridge", Done: true}, "adding": {Plugin: "bridge"}, "cut": {Plugin: "bridge"},
	} {
		r := dir.New("n", name, "eth0", "/proc/self/ns/net")
		r.Parts = []attach.Part{part}
		must(t, dir.Write(r))
		if name == "adding" {
			defer r.Unlock()
		} else {
			r.Unlock()
		}
	}
	gone := dir.New("n", "gone", "eth0", filepath.Join(root, "none"))
	gone.Parts = []attach.Part{{Plugin: "bridge", Done: true, Result: attach.LazyOf(&cni.Result{})}}
	must(t, dir.Write(gone))
	code, out, stderr := call(map[string]string{"FAIRLEAD_RUN": root}, "fairlead", "list")
	want := `NETWORK  CONTAINER  INTERFACE  ADDRESSES  HOST PORTS  AGE  STATE
n        adding     eth0       -          -           0s   adding
n        cut        eth0       -          -           0s   interrupted
n        done       eth0       -          -           0s   ok
n        gone       eth0       -          -           0s   namespace gone
`
	if code != 0 || out != want {
		t.Errorf("code %d, %s\n%s\nwant\n%s", code, stderr, out, want)
	}
}

// TestExamples validates the examples.
func TestExamples(t *testing.T) {
	t.Parallel()
	entries, err := examples.Networks.ReadDir(".")
	must(t, err)
	names := netconf.Names("../../examples")
	if len(names) != len(entries) {
		t.Errorf("%d files, networks %q", len(entries), names)
	}
	if code, out, _ := call(map[string]string{"CNI_PATH": t.TempDir()}, "fairlead", "validate", "../../examples"); code != 0 {
		t.Errorf("validate the examples: %d\n%s", code, out)
	}
}

// TestNeedsRoot runs commands without privileges: records that they may not read must be an error, neither an empty list
// nor a finding of doctor.
func TestNeedsRoot(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "attach"), 0o700))
	must(t, os.Chmod(filepath.Dir(dir), 0o755)) // the parent of the test's own directory
	for _, command := range []string{"list", "doctor"} {
		cmd := exec.Command("/proc/self/exe", command)
		cmd.Args[0] = "fairlead"
		cmd.Env = []string{"FAIRLEAD_RUN=" + dir, "FAIRLEAD_LIB=" + dir, "NETCONFPATH=" + dir}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		out, err := cmd.CombinedOutput()
		if err == nil || cmd.ProcessState.ExitCode() != exitFailed ||
			!strings.Contains(string(out), "permission denied\nThis needs root: run the same command with sudo") {
			t.Errorf("%s: %v: %s", command, err, out)
		}
	}
}
