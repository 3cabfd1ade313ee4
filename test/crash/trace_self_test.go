package crash

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// traceeMain is a program with known calls: it creates three files with one write each, runs a command that creates a
// fourth, and prints the results.
func traceeMain() {
	dir := os.Getenv("WORK")
	for _, name := range []string{"one", "two", "three"} {
		fd, err := unix.Open(filepath.Join(dir, name), unix.O_WRONLY|unix.O_CREAT, 0o600)
		if err != nil {
			fmt.Println(name, "open:", err)
			continue
		}
		n, err := unix.Write(fd, []byte("12345678"))
		fmt.Println(name, n, err)
		_ = unix.Close(fd)
	}
	if err := exec.Command("touch", filepath.Join(dir, "four")).Run(); err != nil {
		fmt.Println("touch:", err)
	}
	fmt.Println("year", time.Now().Year())
}

// TestTracer checks the effect of each of the tracer's actions on the program and its files.
func TestTracer(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	when := func(class string, nth int, a action) func(*call) action {
		return func(c *call) action {
			if c.class() == class {
				if nth--; nth == 0 {
					return a
				}
			}
			return action{}
		}
	}
	for name, tt := range map[string]struct {
		class  string
		nth    int
		action action
		files  string // with sizes
		output string
		killed bool
	}{
		"nothing":         {"no call", 1, action{}, "four:0 one:8 three:8 two:8", "two 8 <nil>", false},
		"kill":            {"write $WORK/two", 1, action{kill: true}, "one:8 two:0", "one 8 <nil>", true},
		"kill after":      {"write $WORK/two", 1, action{kill: true, after: true}, "one:8 two:8", "one 8 <nil>", true},
		"error":           {"write $WORK/two", 1, action{fail: unix.EIO}, "four:0 one:8 three:8 two:0", "two -1 input/output error", false},
		"no file":         {"openat $WORK/two", 1, action{fail: unix.EMFILE}, "four:0 one:8 three:8", "two open: too many open files", false},
		"short":           {"write $WORK/three", 1, action{cut: true}, "four:0 one:8 three:4 two:8", "three 4 <nil>", false},
		"cut":             {"write $WORK/one", 1, action{cut: true, kill: true, after: true}, "one:4", "", true},
		"kill a command":  {"execve /usr/bin/touch", 1, action{kill: true}, "one:8 three:8 two:8", "three 8 <nil>", true},
		"command's error": {"execve /usr/bin/touch", 1, action{fail: unix.ENOSPC}, "one:8 three:8 two:8", "touch: ", false},
		"clock":           {"write $WORK/one", 1, action{setTime: -20 * 365 * 24 * time.Hour}, "four:0 one:8 three:8 two:8", fmt.Sprint("year ", time.Now().Add(-20*365*24*time.Hour).Year()), false},
	} {
		t.Run(name, func(t *testing.T) {
			work, err := os.MkdirTemp("", "machine-")
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(work)
			out, err := os.Create(filepath.Join(t.TempDir(), "out"))
			if err != nil {
				t.Fatal(err)
			}
			defer out.Close()
			kerneltest.Host(t) // a subtest is another goroutine
			e, err := trace(program{path: "/proc/self/exe", argv: []string{"tracee"}, env: append(os.Environ(), "WORK="+work),
				in: out, out: out, at: when(tt.class, tt.nth, tt.action), hideVDSO: tt.action.setTime != 0})
			if err != nil || e.killed != tt.killed || (e.code == -1) != tt.killed {
				t.Errorf("ended %+v, %v", e, err)
			}
			if output, _ := os.ReadFile(out.Name()); !strings.Contains(string(output), tt.output) {
				t.Errorf("output %q, want %q", output, tt.output)
			}
			entries, err := os.ReadDir(work)
			if err != nil {
				t.Fatal(err)
			}
			var have []string
			for _, f := range entries {
				info, err := f.Info()
				if err != nil {
					t.Fatal(err)
				}
				have = append(have, fmt.Sprintf("%s:%d", f.Name(), info.Size()))
			}
			if got := strings.Join(have, " "); got != tt.files {
				t.Errorf("files %q, want %q", got, tt.files)
			}
		})
	}
}
