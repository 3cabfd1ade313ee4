package ipam

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/skel"
)

// asPluginEnv makes the test binary a plugin, host-local or the one named, a process
// of its own.
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

// TestGCAndCheck runs the operations that need no configuration but the name
// and the directory, by the plugin.
func TestGCAndCheck(t *testing.T) {
	t.Parallel()
	conf := `{"cniVersion": "1.1.0", "name": "net", "ipam": {"type": "host-local", "dataDir": "` + t.TempDir() + `", "subnet": "10.1.2.0/24"}`
	run := ours(HostLocal())
	time.Sleep(20 * time.Millisecond) // a process's start is told in hundredths of a second
	for _, id := range []string{"one", "two"} {
		mustRun(t, run, call{verb: "ADD", id: id, conf: conf + "}"})
		mustRun(t, run, call{verb: "CHECK", id: id, conf: conf + "}"})
	}
	// This process began before these ADDs: GC must not take what is younger
	// than itself.
	mustRun(t, run, call{verb: "GC", conf: conf + `, "cni.dev/valid-attachments": []}`})
	mustRun(t, run, call{verb: "CHECK", id: "one", conf: conf + "}"})
	// As a process that starts now does.
	time.Sleep(20 * time.Millisecond)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asPluginEnv+"=1", "CNI_COMMAND=GC", "CNI_PATH=/opt/cni/bin")
	cmd.Stdin = strings.NewReader(conf + `, "cni.dev/valid-attachments": [{"containerID": "one", "ifname": "eth0"}]}`)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("GC: %v: %s", err, out)
	}
	mustRun(t, run, call{verb: "CHECK", id: "one", conf: conf + "}"})
	wantMessage(t, HostLocal(), call{verb: "CHECK", id: "two", conf: conf + "}"}, cni.CodeGeneric,
		"network net holds no address for container two eth0: want the one that ADD gave")
}
