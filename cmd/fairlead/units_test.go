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
)

func TestNetnsPath(t *testing.T) {
	host(t) // a /run of its own
	must(t, os.MkdirAll(netnsDir, 0o755))
	write(t, netnsDir, "web", "")
	wd, err := os.Getwd()
	must(t, err)
	for name, want := range map[string]string{
		"web":              "/run/netns/web",
		"absent":           "/run/netns/absent",
		"testdata":         filepath.Join(wd, "testdata"), // a file here, no name there
		"./web":            filepath.Join(wd, "web"),
		"/proc/1/ns/net":   "/proc/1/ns/net",
		"/run/../tmp/x/./": "/tmp/x",
	} {
		if got, err := netnsPath(name); err != nil || got != want {
			t.Errorf("%s: got %s, %v, want %s", name, got, err, want)
		}
	}
}

func TestPluginPath(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if got := besides(filepath.Join(dir, "fairlead")); got != defaultPluginPath {
		t.Errorf("without cni/ beside the program: %s", got)
	}
	write(t, dir, "cni/bridge", "")
	if got := besides(filepath.Join(dir, "fairlead")); got != filepath.Join(dir, "cni") {
		t.Errorf("with cni/ beside the program: %s", got)
	}
	a := &app{getenv: func(string) string { return "/a:/b" }}
	if got := a.pluginPath(); !slices.Equal(got, []string{"/a", "/b"}) {
		t.Errorf("CNI_PATH: %q", got)
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

func TestWords(t *testing.T) {
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

// TestListStates reads records as a host may have them.
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
	gone.Parts = []attach.Part{{Plugin: "bridge", Done: true, Result: attach.Now(&cni.Result{})}}
	must(t, dir.Write(gone))
	code, out, stderr := call(map[string]string{"FAIRLEAD_RUN": root}, "fairlead", "list")
	want := `NETWORK  CONTAINER  INTERFACE  ADDRESSES  HOST PORTS  AGE  STATE
n        adding     eth0       -          -           0s   adding
n        cut        eth0       -          -           0s   cut off
n        done       eth0       -          -           0s   ok
n        gone       eth0       -          -           0s   namespace gone
`
	if code != 0 || out != want {
		t.Errorf("code %d, %s\n%s\nwant\n%s", code, stderr, out, want)
	}
}

func TestSnapshot(t *testing.T) {
	t.Parallel()
	a := lines("q", []byte("table inet x {\n\tchain c {\n\t\tcounter packets 5 bytes 7\n\t}\n}\n1: eth0 inet 10.0.0.1/8 valid_lft 77sec preferred_lft 7sec\n"))
	b := lines("q", []byte("table inet x {\n\tchain c {\n\t\tcounter packets 6 bytes 9\n\t}\n}\n1: eth0 inet 10.0.0.1/8 valid_lft 70sec preferred_lft 1sec\n2: eth1\n"))
	if gone, come := a.minus(b), b.minus(a); len(gone) != 0 || len(come) != 1 || !strings.Contains(come[0], "2: eth1") {
		t.Errorf("gone %q, come %q", gone, come)
	}
	if got := (snapshot{"x", "x"}).minus(snapshot{"x"}); !slices.Equal(got, snapshot{"x"}) {
		t.Errorf("what is there twice: %q", got)
	}
}

// TestShared is what the demo takes for a trace of an attachment, and what not.
func TestShared(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]bool{
		"host: ip -o link: | 5: cni0: <BROADCAST>":                                                  true,
		"host: ip -o link: | 6: veth1234@if2: <BROADCAST> master cni0x":                             false,
		"web: ip -o link: | 2: eth0 cni0":                                                           false,
		"file: /var/lib/cni/networks/my-network/last_reserved_ip.0":                                 true,
		"file: /var/lib/cni/networks/my-network/10.244.0.2":                                         false,
		"file: /run/fairlead/attach/n/x.json":                                                       false,
		`host: nft list ruleset: table inet fairlead | fib daddr type local comment "fairlead #12"`: true,
		`host: nft list ruleset: table inet fairlead | 10.0.0.1 comment "fairlead n c eth0"`:        false,
		`host: nft list ruleset: table inet fairlead | elements = { 10.0.0.1 }`:                     false,
		"host: nft list ruleset: table inet other | chain c {":                                      false,
		"host: sysctl net.ipv4.ip_forward: | net.ipv4.ip_forward = 1":                               true,
	} {
		if got := shared(line); got != want {
			t.Errorf("%s: got %v", line, got)
		}
	}
}

// TestExamples: the examples are what the demo plays, and all are valid.
func TestExamples(t *testing.T) {
	t.Parallel()
	entries, err := examples.Networks.ReadDir(".")
	must(t, err)
	names := networkNames("../../examples")
	if len(names) != len(entries) {
		t.Errorf("%d files, networks %q", len(entries), names)
	}
	for _, c := range demoCast() {
		if !slices.Contains(names, c.network) {
			t.Errorf("the demo's network %s is in no example", c.network)
		}
	}
	if code, out, _ := call(map[string]string{"CNI_PATH": t.TempDir()}, "fairlead", "validate", "../../examples"); code != 0 {
		t.Errorf("validate the examples: %d\n%s", code, out)
	}
}

func TestIsOurs(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	must(t, err)
	if !isOurs(self) {
		t.Error("this test is of our module")
	}
	for _, other := range []string{"/bin/sh", "/nowhere", write(t, t.TempDir(), "bridge", "#!/bin/sh\n")} {
		if isOurs(other) {
			t.Errorf("%s is not ours", other)
		}
	}
}

// TestListNeedsRoot: records that may not be read are no empty list. Only a
// program without privileges meets this, so it runs as one.
func TestListNeedsRoot(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "attach"), 0o700))
	cmd := exec.Command("/proc/self/exe", "list")
	cmd.Args[0] = "fairlead"
	cmd.Env = []string{"FAIRLEAD_RUN=" + dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	must(t, os.Chmod(filepath.Dir(dir), 0o755)) // the test's own, above
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "permission denied\nThe records of attachments are root's. Type: sudo fairlead list") {
		t.Errorf("%v: %s", err, out)
	}
}
