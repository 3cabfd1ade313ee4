// Package churn runs ADD, CHECK, DEL and GC at random, 64 at once, over several networks, and kills plugins at random.
// A model checks the invariants: no address is allocated twice, none leaks, nothing is left, and GC never removes an
// attachment that is being added.
//
// FAIRLEAD_CHURN sets the duration, 8s by default. FAIRLEAD_SEED repeats a run's choices (not its timing).
package churn

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/plugintest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

var testProgram string // see package plugintest

// TestMain runs this binary as the runtime if argv[0] says so.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "runtime" {
		runtimeMain()
		return
	}
	os.Exit(plugintest.Run(m, &testProgram))
}

const containers = 48

func TestChurn(t *testing.T) {
	t.Parallel()
	h := newChurnHost(t)
	h.run("once") // now shared objects exist
	before := h.state()
	for unchanged := time.Now(); time.Since(unchanged) < settleTime/5; time.Sleep(100 * time.Millisecond) {
		if now := h.state(); now != before {
			before, unchanged = now, time.Now()
		}
	}
	seed := os.Getenv("FAIRLEAD_SEED")
	if seed == "" {
		seed = strconv.FormatUint(rand.Uint64(), 10)
	}
	output := h.run("churn", "FAIRLEAD_SEED="+seed, "FAIRLEAD_CHURN="+duration(t).String())
	t.Logf("seed %s: %s", seed, output)
	after := h.state()
	for end := time.Now().Add(kerneltest.Slow(settleTime)); after != before && time.Now().Before(end); after = h.state() {
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

// host is a machine with 48 containers.
type host struct {
	*kerneltest.Machine
	names []string // of the containers
}

func newChurnHost(t *testing.T) *host {
	h := &host{}
	for i := range containers {
		h.names = append(h.names, fmt.Sprint("container ", i))
	}
	h.Machine = kerneltest.NewMachine(t, h.names...)
	h.Install("runtime")
	h.Link(testProgram, plugintest.Names()...)
	return h
}

// run runs the runtime, with this thread's namespace as the host's.
func (h *host) run(what string, env ...string) string {
	h.T.Helper()
	args := []string{what, h.Dir}
	for _, name := range h.names {
		args = append(args, h.Netns[name])
	}
	cmd := exec.Command(filepath.Join(h.Bin(), "runtime"), args...)
	cmd.Env = h.Env(env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		h.T.Fatalf("%s %v: %v\n%s", what, env, err, out)
	}
	return strings.TrimSpace(string(out))
}

// state returns everything that attachments may leave: the namespaces and the files.
func (h *host) state() string {
	s := kerneltest.Mask(kerneltest.Dump(h.T, ""), kerneltest.Timers, kerneltest.IPv6State)
	for _, name := range h.names {
		s += name + "\n" + kerneltest.Dump(h.T, h.Netns[name])
	}
	entries, err := os.ReadDir(h.Dir)
	if err != nil {
		h.T.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != "bin" {
			s += h.Files(e.Name())
		}
	}
	return s
}
