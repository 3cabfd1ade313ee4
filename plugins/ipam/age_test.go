package ipam

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/ipam"
	"github.com/fairlead/fairlead/skel"
)

// asPluginEnv makes the test binary run as a plugin in its own process: host-local, or the named one.
const asPluginEnv = "FAIRLEAD_IPAM_AS_PLUGIN"

func TestMain(m *testing.M) {
	if name := os.Getenv(asPluginEnv); name != "" {
		for _, p := range []skel.Plugin{HostLocal(), Fairlead(), Whereabouts()} {
			if p.Name == name || name == "1" {
				skel.PluginMain(p)
				return
			}
		}
	}
	os.Exit(m.Run())
}

// TestGCAndCheck runs the operations that need only the name and the directory. GC compares with this process's start,
// unless the process is older than a minute, which a plugin never is. So this test must run early: tests run in the
// order of their files, and this file's name sorts first.
func TestGCAndCheck(t *testing.T) {
	conf := `{"cniVersion": "1.1.0", "name": "net", "ipam": {"type": "host-local", "dataDir": "` + t.TempDir() + `", "subnet": "10.1.2.0/24"}`
	run := ours(HostLocal())
	time.Sleep(20 * time.Millisecond) // a process's start has a resolution of 10 ms
	for _, id := range []string{"one", "two"} {
		mustRun(t, run, call{verb: "ADD", id: id, conf: conf + "}"})
		mustRun(t, run, call{verb: "CHECK", id: id, conf: conf + "}"})
	}
	// This process started before these ADDs, so GC must keep them.
	mustRun(t, run, call{verb: "GC", conf: conf + `, "cni.dev/valid-attachments": []}`})
	mustRun(t, run, call{verb: "CHECK", id: "one", conf: conf + "}"})
	// A process that starts now collects them.
	time.Sleep(20 * time.Millisecond)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asPluginEnv+"=1", "CNI_COMMAND=GC", "CNI_PATH=/opt/cni/bin")
	cmd.Stdin = strings.NewReader(conf + `, "cni.dev/valid-attachments": [{"containerID": "one", "ifname": "eth0"}]}`)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("GC: %v: %s", err, out)
	}
	mustRun(t, run, call{verb: "CHECK", id: "one", conf: conf + "}"})
	wantMessage(t, HostLocal(), call{verb: "CHECK", id: "two", conf: conf + "}"}, cni.CodeGeneric,
		"network net has no address for container two eth0, but ADD allocated one: run DEL and ADD again")
}

// TestGCAfterFailedDel checks GC after a DEL that freed the address but failed before it notified the agent. GC
// notifies the agent and removes the owner.
func TestGCAfterFailedDel(t *testing.T) {
	t.Parallel()
	m := newMember(t, "a")
	gc := strings.Replace(whereaboutsOf(`"range": "192.168.2.0/24"`), `"ipam"`, `"cni.dev/valid-attachments": [{"containerID": "alive", "ifname": "eth0"}], "ipam"`, 1)
	network := "whereabouts"
	s, err := ipam.Open(t.Context(), m.dir().Addresses(), network, ipam.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	name := cniNameOf(t, gc)
	half, alive, other := ipam.Owner{ContainerID: "half", IfName: "eth0"}, ipam.Owner{ContainerID: "alive", IfName: "eth0"}, ipam.Owner{ContainerID: "other", IfName: "eth0"}
	for o, of := range map[ipam.Owner]string{half: name, alive: name, other: "another"} {
		must(t, m.dir().SetUser(network, o, of))
	}
	if code, out := m.plugin("whereabouts", call{verb: "GC", conf: strings.Replace(gc, "1.0.0", "1.1.0", 1)}); code != 0 {
		t.Fatal(out)
	}
	list, err := m.dir().PendingReleases()
	if err != nil || len(list) != 1 || list[0] != (local.Release{Network: network, Container: "half", IfName: "eth0"}) {
		t.Errorf("noted for the agent: %v, %v", list, err)
	}
	if m.dir().HasUser(network, half) || !m.dir().HasUser(network, alive) || !m.dir().HasUser(network, other) {
		t.Error("the wrong owners were dropped")
	}
}

func cniNameOf(t testing.TB, conf string) string {
	t.Helper()
	var c cni.PluginConf
	must(t, cni.Decode([]byte(conf), &c))
	return c.Name
}
