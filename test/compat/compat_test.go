package compat

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/fairlead/fairlead/internal/reference"
	"github.com/fairlead/fairlead/plugins"
)

// TestMain builds our plugins as they are shipped: one program and its links.
func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "fairlead-compat-")
	if err == nil {
		defer os.RemoveAll(dir)
		if have := os.Getenv(oursVariable); have != "" {
			dir = have // built before: see test/vm
		} else {
			err = build(dir)
		}
	}
	// A case spends most of its time waiting for the kernel to release links. The flag can ask for 8 or more.
	if n, e := strconv.Atoi(flag.Lookup("test.parallel").Value.String()); err == nil && e == nil && n < 8 {
		err = flag.Set("test.parallel", "24")
	}
	if err == nil {
		err = os.Setenv(oursVariable, dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// oursVariable is the environment variable with the directory of our plugins.
const oursVariable = "FAIRLEAD_TEST_PLUGINS"

func build(dir string) error {
	cmd := exec.Command("go", "build", "-o", dir, "github.com/fairlead/fairlead/cmd/fairlead-cni", "github.com/fairlead/fairlead/cmd/fairlead")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build our plugins: %w\n%s", err, out)
	}
	for _, p := range plugins.All() {
		if err := os.Symlink("fairlead-cni", filepath.Join(dir, p.Name)); err != nil {
			return err
		}
	}
	return nil
}

// side is a combination of our or the reference runtime with our or the reference plugins.
type side struct{ ourRuntime, ourPlugins bool }

// sides returns the combinations. The others must equal the first.
func sides() []side {
	return []side{{false, false}, {false, true}, {true, false}, {true, true}}
}

func (s side) String() string {
	name := map[bool]string{true: "Fairlead", false: "reference"}
	return name[s.ourRuntime] + " runtime, " + name[s.ourPlugins] + " plugins"
}

// pluginDir returns the directory of a side's plugins, for CNI_PATH.
func (s side) pluginDir(t testing.TB) string {
	if s.ourPlugins {
		return os.Getenv(oursVariable)
	}
	dir := ""
	for _, name := range []string{"loopback", "bridge", "ptp", "macvlan", "ipvlan", "vlan", "tap", "dummy", "vrf", "tuning", "bandwidth", "firewall", "sbr", "host-device", "host-local", "static", "portmap", "dhcp"} {
		dir = filepath.Dir(reference.Plugin(t, name))
	}
	return dir
}
