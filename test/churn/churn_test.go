// Package churn runs ADD, CHECK, DEL and GC at random, 64 at once, over several networks, and kills plugins at random.
// A model checks the invariants: no address is allocated twice, none leaks, nothing is left, and GC never removes an
// attachment that is being added.
//
// FAIRLEAD_CHURN sets the duration, 8s by default. FAIRLEAD_SEED repeats a run's choices (not its timing).
package churn

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/plugins"
	"github.com/fairlead/fairlead/skel"
)

// TestMain runs this binary as the plugin named by argv[0], or as the runtime.
func TestMain(m *testing.M) {
	name := filepath.Base(os.Args[0])
	for _, p := range plugins.All() {
		if p.Name == name {
			skel.PluginMain(p)
		}
	}
	if name == "runtime" {
		runtimeMain()
		return
	}
	os.Exit(m.Run())
}

const containers = 48

func TestChurn(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	h := &host{dir: t.TempDir()}
	h.install(t)
	for range containers {
		h.netns = append(h.netns, kerneltest.Netns(t))
	}
	h.run(t, "once") // now shared objects exist
	time.Sleep(settleTime / 5)
	before := h.state(t)
	seed := os.Getenv("FAIRLEAD_SEED")
	if seed == "" {
		seed = strconv.FormatUint(rand.Uint64(), 10)
	}
	output := h.run(t, "churn", "FAIRLEAD_SEED="+seed, "FAIRLEAD_CHURN="+duration(t).String())
	t.Logf("seed %s: %s", seed, output)
	after := h.state(t)
	for end := time.Now().Add(kerneltest.Slow(settleTime)); after != before && time.Now().Before(end); after = h.state(t) {
		time.Sleep(100 * time.Millisecond)
	}
	if after != before {
		t.Errorf("seed %s: left behind:\n%s", seed, kerneltest.Diff(before, after))
	}
}

// settleTime is the time that the kernel may need to update a bridge that has lost its last port.
const settleTime = 5 * time.Second

func duration(t *testing.T) time.Duration {
	s := os.Getenv("FAIRLEAD_CHURN")
	if s == "" {
		return 8 * time.Second
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// host is a network namespace and its files.
type host struct {
	dir   string
	netns []string
}

func (h *host) install(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"runtime"}
	for _, p := range plugins.All() {
		names = append(names, p.Name)
	}
	if err := os.Mkdir(h.dir+"/bin", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if err := os.Symlink(self, filepath.Join(h.dir, "bin", n)); err != nil {
			t.Fatal(err)
		}
	}
}

// run runs the runtime, with this thread's namespace as the host's.
func (h *host) run(t *testing.T, what string, env ...string) string {
	t.Helper()
	cmd := exec.Command(h.dir+"/bin/runtime", append([]string{what, h.dir}, h.netns...)...)
	cmd.Env = append(os.Environ(), "CNI_PATH="+h.dir+"/bin", "FAIRLEAD_RUN="+h.dir+"/run", "FAIRLEAD_LIB="+h.dir+"/lib")
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", what, env, err, out)
	}
	return strings.TrimSpace(string(out))
}

// state returns everything that attachments may leave: the namespaces, and the files without allocation cursors.
func (h *host) state(t *testing.T) string {
	s := regexp.MustCompile(`_timer +[0-9.]+`).ReplaceAllString(kerneltest.Dump(t, ""), "")
	for i, ns := range h.netns {
		s += fmt.Sprintf("container %d\n%s", i, kerneltest.Dump(t, ns))
	}
	err := filepath.WalkDir(h.dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && !strings.Contains(path, "/.fairlead/") && !strings.Contains(path, "last_reserved_ip") && filepath.Dir(path) != h.dir+"/bin" {
			s += "file " + path + "\n"
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}
