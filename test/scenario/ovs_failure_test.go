package scenario

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestOVSDetectsManualChanges checks that CHECK reports manual changes, and that DEL without a record or a namespace
// finds everything.
func TestOVSDetectsManualChanges(t *testing.T) {
	t.Parallel()
	s := newOVSMachine(t)
	conf := s.conf("n", `"vlan": 10,`)
	s.must("add", conf, "b")
	s.must("add", conf, "a")
	p := s.port("a")
	s.sw.Ctl("set", "port", p, "tag=11", "--", "set", "interface", p, "external_ids:fairlead-container=x")
	s.wantError("check", conf, "a", `tag is 11, want 10, external_ids:fairlead-container is "x", want "a"`)
	kerneltest.In(t, s.Netns["a"], "ethtool", "-K", "eth0", "tx", "on")
	s.wantError("check", conf, "a", `eth0 in the container offloads checksums`)
	s.sw.Ctl("del-port", p)
	s.wantError("check", conf, "a", `host: ovs-vsctl add-port ovs0 `+p+` tag=10: is missing`)
	s.wantError("add", conf, "a", `container a is already attached to network n as eth0`)
	s.must("del", conf, "a")
	s.must("add", conf, "a")
	kerneltest.Gone(t, s.Netns["a"])
	if err := os.RemoveAll(filepath.Join(s.Dir, "run")); err != nil {
		t.Fatal(err)
	}
	s.must("del", conf, "a")
	if links := kerneltest.Run(t, "ip", "-o", "link"); s.port("a") != "" || s.port("b") == "" || strings.Contains(links, p) {
		t.Errorf("after DEL:\n%s%s", s.sw.State(), links)
	}
}

// TestOVSGCWithoutRecord checks that GC removes the port of a forgotten attachment, and that the next ADD repairs what
// a restart of the host leaves.
func TestOVSGCWithoutRecord(t *testing.T) {
	t.Parallel()
	s := newOVSMachine(t)
	conf := s.conf("n", "")
	s.must("add", conf, "b")
	s.must("add", s.conf("other", ""), "c")
	s.must("add", conf, "a")
	p := s.port("a")
	for _, dir := range []string{"run", "cache"} {
		if err := os.RemoveAll(filepath.Join(s.Dir, dir)); err != nil {
			t.Fatal(err)
		}
	}
	kerneltest.Run(t, "ip", "link", "delete", p) // the database outlives a reboot, the link does not
	if err := os.RemoveAll(filepath.Join(s.Dir, "ipam")); err != nil {
		t.Fatal(err)
	}
	s.must("add", conf, "a") // reuses its row
	s.must("check", conf, "a")
	if err := os.RemoveAll(filepath.Join(s.Dir, "run")); err != nil {
		t.Fatal(err)
	}
	s.must("gc", conf, "b", "VALID=b/eth0")
	if s.port("a") != "" || s.port("b") == "" || s.port("c") == "" {
		t.Errorf("after GC:\n%s", s.state())
	}
}

// TestOVSDaemonsStopped stops the switch's daemons. Without the database STATUS reports the error, ADD fails without a
// trace and DEL succeeds. Without ovs-vswitchd ADD reports that it is not running.
func TestOVSDaemonsStopped(t *testing.T) {
	t.Parallel()
	s := newOVSMachine(t)
	conf := s.conf("n", "")
	s.must("status", conf, "a")
	s.must("add", conf, "b")
	s.sw.Kill("ovs-vswitchd")
	before := s.state()
	s.wantError("add", conf, "a", `ovs-vswitchd has not acted on a change within 10s: is it running?`)
	s.wantState(before)
	before = s.withoutSwitch()
	s.sw.Stop("ovsdb-server")
	want := `Open vSwitch does not answer at ` + s.sw.Socket() + `: no such file or directory: start it`
	s.wantError("status", conf, "a", want)
	s.wantError("add", conf, "a", want)
	s.wantError("check", conf, "b", want)
	s.must("del", conf, "a")
	if d := kerneltest.Diff(before, s.withoutSwitch()); d != "" {
		t.Errorf("left behind:\n%s", d)
	}
}

// TestOVSConcurrentAdds runs eight ADDs concurrently on an empty switch: exactly one creates the bridge and the tunnel.
func TestOVSConcurrentAdds(t *testing.T) {
	t.Parallel()
	s := newOVSMachine(t)
	conf := strings.ReplaceAll(s.conf("n", `"vxlanID": 42,`), "$IPAM", `"ipam": {"type": "host-local", "dataDir": "`+s.Dir+`/ipam", "subnet": "10.1.0.0/24"}`)
	file := filepath.Join(s.Dir, "net.conf")
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	bin, netns := programs, make([]string, 8)
	for i := range netns {
		netns[i] = kerneltest.Netns(t)
	}
	all := func(verb string) {
		var wg sync.WaitGroup
		for i, ns := range netns {
			var out strings.Builder
			cmd := exec.Command(bin+"/cni", verb, file, "NS")
			cmd.Env = s.Env("CNI_PATH="+bin, "NS="+ns, fmt.Sprintf("CONTAINER=c%d", i))
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := cmd.Start(); err != nil { // started from this thread, to inherit its namespace
				t.Fatal(err)
			}
			wg.Go(func() {
				if err := cmd.Wait(); err != nil {
					t.Errorf("%s c%d: %v: %s", verb, i, err, out.String())
				}
			})
		}
		wg.Wait()
	}
	all("add")
	if ports := strings.Fields(s.sw.Ctl("list-ports", "ovs0")); len(ports) != 9 {
		t.Errorf("%d ports, want 8 and a tunnel: %v", len(ports), ports)
	}
	all("check")
	all("del")
	if ports := strings.Fields(s.sw.Ctl("list-ports", "ovs0")); len(ports) != 1 || !strings.HasPrefix(ports[0], "vx42-") {
		t.Errorf("ports left behind: %v", ports)
	}
}

// TestOVSContainerRestart checks that a container whose namespace disappeared gets its port and address again.
func TestOVSContainerRestart(t *testing.T) {
	t.Parallel()
	s := newOVSMachine(t)
	conf := s.conf("n", "")
	s.must("add", conf, "a")
	kerneltest.Gone(t, s.Netns["a"])
	s.Netns["a"] = kerneltest.Netns(t)
	if out := s.must("add", conf, "a"); !strings.Contains(out, `"address":"10.1.0.2/24"`) {
		t.Errorf("result: %s", out)
	}
	s.must("check", conf, "a")
	if ports := strings.Fields(s.sw.Ctl("list-ports", "ovs0")); len(ports) != 1 {
		t.Errorf("ports: %v", ports)
	}
}

// TestOVSInvalidRequests checks that an ADD which the switch cannot satisfy reports the reason and leaves nothing.
func TestOVSInvalidRequests(t *testing.T) {
	t.Parallel()
	s := newOVSMachine(t)
	kerneltest.Run(t, "ip", "link", "add", "cni0", "type", "bridge")
	before := s.state()
	in := func(bridge, keys string) string {
		return strings.Replace(s.conf("n", keys), `"ovs0"`, `"`+bridge+`"`, 1)
	}
	s.wantError("add", in("cni0", ""), "a", `cni0 is a Linux bridge, not an Open vSwitch bridge`)
	s.wantError("add", s.conf("n", `"vlan": 4095,`), "a", `vlan = 4095: want a VLAN ID`)
	s.wantError("add", s.conf("n", `"socket_file": "db.sock",`), "a", `want the path of a socket`)
	s.wantState(before)
	s.must("add", in("ovs1", ""), "b")
	p := s.port("b")
	s.must("del", in("ovs1", ""), "b")
	s.sw.Ctl("add-port", "ovs1", p, "--", "set", "interface", p, "type=internal")
	s.wantError("add", in("ovs1", ""), "b", `already`)
	s.must("del", in("ovs1", ""), "b")
	if got := s.sw.Ctl("list-ports", "ovs1"); strings.TrimSpace(got) != p {
		t.Errorf("DEL removed a third-party port: %q", got)
	}
}

// TestOVSKilledAdd kills ADD at random points. DEL frees everything, given only the names.
func TestOVSKilledAdd(t *testing.T) {
	t.Parallel()
	s := newOVSMachine(t)
	conf := strings.ReplaceAll(s.conf("n", `"vxlanID": 42,`), "$IPAM", `"ipam": {"type": "host-local", "dataDir": "`+s.Dir+`/ipam", "subnet": "10.1.0.0/24"}`)
	s.plugin(t, "ADD", conf, 0)
	s.plugin(t, "DEL", conf, 0)
	duration := s.plugin(t, "ADD", conf, 0)
	s.plugin(t, "DEL", conf, 0)
	before := s.state()
	killed := 0
	for try := 0; killed < 12 && try < 100; try++ {
		if took := s.plugin(t, "ADD", conf, 1+duration*time.Duration(try%13)/13); took >= 0 {
			duration = took // it ended sooner than the last one
		} else if killed++; try%2 == 1 {
			s.plugin(t, "ADD", conf, 0)
		}
		s.plugin(t, "DEL", conf, 0)
		if d := kerneltest.Diff(before, s.state()); d != "" {
			t.Fatalf("try %d: DEL left\n%s", try, d)
		}
	}
	if killed < 12 {
		t.Errorf("only %d kills hit a running ADD", killed)
	}
}
