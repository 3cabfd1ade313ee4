// Command peak runs a plugin and measures the memory of its process tree, in KiB. It reports the largest sum, over
// processes alive at one time, of each one's own peak (VmHWM, proc(5)). A process's rusage would be wrong, because a
// child's ru_maxrss starts with its parent's. Peak stops each process at its end to read the value (ptrace(2)), so
// times are not meaningful during this measurement.
package main

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/fairlead/fairlead/bench/load"
)

func main() {
	runtime.LockOSThread() // ptrace belongs to a thread, not to a process
	code, kib, err := run(os.Getenv(load.PeakArgv0))
	if err == nil {
		err = os.WriteFile(os.Getenv(load.PeakFile), []byte(strconv.Itoa(kib)), 0o600)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "peak:", err)
		code = 1
	}
	os.Exit(code)
}

const options = syscall.PTRACE_O_TRACECLONE | syscall.PTRACE_O_TRACEFORK | syscall.PTRACE_O_TRACEVFORK |
	syscall.PTRACE_O_TRACEEXEC | syscall.PTRACE_O_TRACEEXIT

func run(path string) (code, kib int, err error) {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, load.PeakProgram) })
	p, err := os.StartProcess(path, []string{path}, &os.ProcAttr{
		Env: env, Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}, Sys: &syscall.SysProcAttr{Ptrace: true},
	})
	if err != nil {
		return 0, 0, err
	}
	var ws syscall.WaitStatus
	if _, err := syscall.Wait4(p.Pid, &ws, 0, nil); err != nil {
		return 0, 0, fmt.Errorf("wait for %s to start: %w", path, err)
	}
	if err := syscall.PtraceSetOptions(p.Pid, options); err != nil {
		return 0, 0, fmt.Errorf("trace %s: %w", path, err)
	}
	t := tree{root: p.Pid, alive: map[int]int{p.Pid: 0}, known: map[int]bool{p.Pid: true}}
	_ = syscall.PtraceCont(p.Pid, 0)
	for {
		pid, err := syscall.Wait4(-1, &ws, syscall.WALL, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return t.code, t.most, nil // ECHILD: all have ended
		}
		t.see(pid, ws)
	}
}

// tree is the set of running processes.
type tree struct {
	root  int
	code  int
	alive map[int]int  // process -> peak so far in KiB; only processes after exec, with memory of their own
	known map[int]bool // threads that have stopped before
	most  int
}

// see handles one state change and resumes the thread.
func (t *tree) see(pid int, ws syscall.WaitStatus) {
	if !ws.Stopped() {
		if pid == t.root {
			t.code = ws.ExitStatus()
		}
		delete(t.alive, pid)
		delete(t.known, pid)
		return
	}
	pass := int(ws.StopSignal())
	switch {
	case ws.StopSignal() == syscall.SIGTRAP:
		pass = 0
		switch ws.TrapCause() {
		case syscall.PTRACE_EVENT_EXEC:
			t.alive[pid] = 0
		case syscall.PTRACE_EVENT_EXIT:
			t.sum()
		}
	case ws.StopSignal() == syscall.SIGSTOP && !t.known[pid]:
		pass = 0 // a traced thread starts with this stop
	}
	t.known[pid] = true
	_ = syscall.PtraceCont(pid, pass)
}

func (t *tree) sum() {
	all := 0
	for pid, had := range t.alive {
		t.alive[pid] = max(had, resident(pid))
		all += t.alive[pid]
	}
	t.most = max(t.most, all)
}

// resident returns a process's peak resident memory, in KiB.
func resident(pid int) int {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(status, []byte("VmHWM:"))
	words := bytes.Fields(rest)
	if len(words) == 0 {
		return 0
	}
	kib, _ := strconv.Atoi(string(words[0]))
	return kib
}
