package plugin_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/plugin/plugintest"
	"github.com/fairlead/fairlead/plugins/chain"
	"github.com/fairlead/fairlead/plugins/link"
	"github.com/fairlead/fairlead/plugins/ovs"
	"github.com/fairlead/fairlead/skel"
)

// The paths that mark the beginning and the end of a plugin's function in a trace of system calls.
const (
	beginMark = "/planning/begins"
	endMark   = "/planning/ends"
)

// planTraced makes this test program a process that strace observes.
const planTraced = "FAIRLEAD_PLAN_TRACED"

// TestPlanningMakesNoSystemCall traces the planning of every golden configuration. Between the marks, the thread that
// plans makes no system call but those of the Go runtime.
func TestPlanningMakesNoSystemCall(t *testing.T) {
	t.Parallel()
	if os.Getenv(planTraced) != "" {
		planAll(t)
		return
	}
	trace := filepath.Join(t.TempDir(), "trace")
	cmd := exec.Command("strace", "-ff", "-o", trace, os.Args[0], "-test.run=^TestPlanningMakesNoSystemCall$", "-test.v")
	cmd.Env = append(os.Environ(), planTraced+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	files, _ := filepath.Glob(trace + ".*")
	planned := 0
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		planning := false
		for line := range strings.Lines(string(raw)) {
			switch {
			case strings.Contains(line, beginMark):
				planning = true
				planned++
			case strings.Contains(line, endMark):
				planning = false
			case planning && !ofRuntime(line):
				t.Errorf("a plugin's function makes a system call: %s", line)
			}
		}
	}
	t.Logf("%d calls of functions of plugins", planned)
	if said := regexp.MustCompile(`planned (\d+) times`).FindSubmatch(out); said == nil || fmt.Sprint(planned) != string(said[1]) || planned < 150 {
		t.Errorf("%d calls are in the trace:\n%s", planned, out)
	}
}

// ofRuntime reports whether the Go runtime makes a system call on its own: for memory, threads and signals.
func ofRuntime(line string) bool {
	name, _, _ := strings.Cut(line, "(")
	return slices.Contains([]string{"futex", "madvise", "mmap", "munmap", "sched_yield", "nanosleep", "tgkill", "getpid", "gettid", "clone", "clone3",
		"rt_sigreturn", "rt_sigprocmask", "sigaltstack", "epoll_pwait", "epoll_ctl", "restart_syscall"}, name) ||
		strings.HasPrefix(line, "--- SIG") || strings.HasPrefix(line, "<... ")
}

func mark(begin bool) {
	path := endMark
	if begin {
		path = beginMark
	}
	_ = unix.Access(path, unix.F_OK) // it need not exist
}

// planAll plans every golden configuration of every declarative plugin.
func planAll(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cases, _ := plugintest.Cases(t, "../plugins/*/testdata/*.json", declarative()...)
	calls, used := 0, map[string]bool{}
	for _, c := range cases {
		args := &skel.CmdArgs{ContainerID: "c1", IfName: "eth0", Netns: "/run/netns/c1", StdinData: c.Conf}
		n, err := c.Plugin.PlanMarked(args, plugintest.Host(c.Plugin.Chained), c.Result, mark)
		if err == nil {
			used[c.Plugin.Name] = true
		}
		calls += n
	}
	for _, p := range declarative() {
		if !used[p.Name] {
			t.Errorf("no configuration of %s was planned to the end", p.Name)
		}
	}
	t.Logf("planned %d times", calls)
}

func declarative() []plugin.Plugin {
	return []plugin.Plugin{link.Bridge(), link.Dummy(), link.HostDevice(), link.IPvlan(), link.Loopback(), link.Macvlan(), link.PTP(), link.Tap(), link.VLAN(),
		chain.Bandwidth(), chain.Firewall(), chain.Portmap(), chain.SBR(), chain.Tuning(), chain.VRF(), ovs.Plugin()}
}
