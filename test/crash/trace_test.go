package crash

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// program is the program to trace, with all processes that it starts.
type program struct {
	path     string
	argv     []string
	env      []string
	in, out  *os.File
	at       func(*call) action // called at the entry of every counted call
	clock    time.Duration      // added to the time of day that the program reads
	hideVDSO bool               // turns reading the time into a system call
	limit    time.Duration      // 0 means 40 seconds
}

// outcome describes how the program ended.
type outcome struct {
	code     int // exit code of the first process, or -1 after a signal
	calls    int // counted
	hit      *call
	killed   bool // by the tracer
	hung     bool // it did not end within the limit
	commands int  // processes that it started
}

// call is a system call at its entry.
type call struct {
	n       int // counted from 1, over all threads and processes
	pid     int // the thread's ID
	nr      uint64
	args    [6]uint64
	program string // "" means this program
}

// action describes how the tracer changes a call. The zero action lets the call continue.
type action struct {
	kill    bool          // before the call has an effect, or after it with cut
	fail    unix.Errno    // the call has no effect and returns this error
	cut     bool          // only half of the data is written
	after   bool          // kill after the call has had its effect
	setTime time.Duration // from now on added to the time of day
	last    bool          // at is not called again
}

// tracer follows a program's threads and processes. It runs on one thread, because the kernel ties a tracer to a
// thread.
type tracer struct {
	program
	outcome
	tasks map[int]*task
	main  int
	first int  // status of the first process
	idle  bool // at is not called again
}

// task is a traced thread.
type task struct {
	begun    bool // its initial stop is over
	counting bool // it is past its start
	entered  bool // it is in a call
	call     call
	then     action
	program  string // "" means this program
}

const (
	traceOptions = unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACEFORK |
		unix.PTRACE_O_TRACEVFORK | unix.PTRACE_O_TRACEEXEC | unix.PTRACE_O_EXITKILL
	ownThread = unix.WALL | unix.WNOTHREAD
)

// trace runs a program in the calling goroutine's namespaces. The goroutine must be locked to its thread
// (kerneltest.Host does that).
func trace(p program) (outcome, error) {
	t := &tracer{program: p, tasks: map[int]*task{}}
	pid, err := syscall.ForkExec(p.path, p.argv, &syscall.ProcAttr{
		Env: p.env, Files: []uintptr{p.in.Fd(), p.out.Fd(), p.out.Fd()}, Sys: &syscall.SysProcAttr{Ptrace: true, Setpgid: true},
	})
	if err != nil {
		return outcome{}, fmt.Errorf("start %s: %w", p.path, err)
	}
	t.main, t.tasks[pid] = pid, &task{begun: true}
	var ws unix.WaitStatus
	if _, err := unix.Wait4(pid, &ws, ownThread, nil); err != nil {
		return outcome{}, err
	}
	if p.hideVDSO || p.clock != 0 {
		if err := hideVDSO(pid); err != nil {
			return outcome{}, err
		}
	}
	if err := errors.Join(unix.PtraceSetOptions(pid, traceOptions), unix.PtraceSyscall(pid, 0)); err != nil {
		return outcome{}, err
	}
	limit := p.limit
	if limit == 0 {
		limit = kerneltest.Slow(40 * time.Second)
	}
	watch := time.AfterFunc(limit, func() { _ = unix.Kill(-pid, unix.SIGKILL) })
	err = t.follow()
	if !watch.Stop() {
		t.hung = true
	}
	t.code = -1
	if ws := unix.WaitStatus(t.first); ws.Exited() {
		t.code = ws.ExitStatus()
	}
	return t.outcome, err
}

// follow handles stops until no task is left.
func (t *tracer) follow() error {
	for len(t.tasks) > 0 {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, ownThread, nil)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.ECHILD:
			return nil
		case err != nil:
			return err
		}
		if ws.Exited() || ws.Signaled() {
			delete(t.tasks, pid)
			if pid == t.main {
				t.first = int(ws)
			}
			t.prune()
			continue
		}
		if err := t.stopped(pid, ws); err != nil && err != unix.ESRCH { // ESRCH: the task was killed in the meantime
			return err
		}
	}
	return nil
}

// prune removes threads that ended without a stop, because they were killed before they ran. This thread has other
// children (a scene's servers), so waiting for any child would block forever.
func (t *tracer) prune() {
	for pid := range t.tasks {
		if unix.Kill(pid, 0) == unix.ESRCH {
			delete(t.tasks, pid)
		}
	}
}

func (t *tracer) stopped(pid int, ws unix.WaitStatus) error {
	k := t.tasks[pid]
	if k == nil {
		k = &task{}
		t.tasks[pid] = k
	}
	sig := ws.StopSignal()
	switch {
	case sig == unix.SIGTRAP|0x80:
		return t.syscall(pid, k)
	case sig == unix.SIGTRAP:
		switch ws.TrapCause() {
		case unix.PTRACE_EVENT_CLONE, unix.PTRACE_EVENT_FORK, unix.PTRACE_EVENT_VFORK:
			if child, err := unix.PtraceGetEventMsg(pid); err == nil {
				c := t.tasks[int(child)]
				if c == nil {
					c = &task{}
					t.tasks[int(child)] = c
				}
				c.counting, c.program = k.counting, k.program
				if ws.TrapCause() != unix.PTRACE_EVENT_CLONE {
					t.commands++
				}
			}
		case unix.PTRACE_EVENT_EXEC:
			k.program = programOf(pid)
			k.counting = k.program != ""
			if (t.hideVDSO || t.clock != 0) && !k.counting {
				if err := hideVDSO(pid); err != nil {
					return err
				}
			}
		}
		return t.resume(pid, 0)
	case sig == unix.SIGSTOP && !k.begun:
		k.begun = true
		return t.resume(pid, 0)
	}
	return t.resume(pid, int(sig))
}

// programOf returns the name of a process's program, or "" for one that marks the end of its start, which is not counted.
func programOf(pid int) string {
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil || marks(exe) {
		return ""
	}
	return filepath.Base(exe)
}

func (t *tracer) resume(pid, sig int) error {
	if t.idle && !t.hideVDSO && t.clock == 0 {
		return unix.PtraceCont(pid, sig)
	}
	return unix.PtraceSyscall(pid, sig)
}

// killAll kills every process at once, before the pending calls have an effect.
func (t *tracer) killAll() {
	t.killed, t.idle = true, true
	for pid := range t.tasks {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}

func (t *tracer) syscall(pid int, k *task) error {
	info, err := syscallInfo(pid)
	if err != nil {
		return err
	}
	if info.op == opEntry {
		return t.enter(pid, k, info)
	}
	if info.op == opExit && k.entered {
		return t.leave(pid, k, info)
	}
	return t.resume(pid, 0)
}

func (t *tracer) enter(pid int, k *task, info *callInfo) error {
	k.entered, k.then = true, action{}
	k.call = call{pid: pid, nr: info.nr, args: info.args, program: k.program}
	if isMark(&k.call) {
		for _, other := range t.threadsOf(pid) {
			other.counting = true
		}
		return t.resume(pid, 0)
	}
	if !k.counting || t.idle || ignored(info.nr) || k.program != "" && !mayChange(callName(info.nr)) {
		return t.resume(pid, 0)
	}
	t.calls++
	k.call.n = t.calls
	a := t.at(&k.call)
	if a != (action{}) {
		hit := k.call
		t.hit = &hit
	}
	t.idle = t.idle || a.last
	if a.setTime != 0 {
		t.clock = a.setTime
	}
	k.then = a
	switch {
	case a.kill && !a.after:
		t.killAll()
		return nil
	case a.fail != 0 && callName(info.nr) == "close": // close closes the descriptor even if it fails
		return unix.PtraceSyscall(pid, 0)
	case a.fail != 0:
		if err := skipCall(pid); err != nil {
			return err
		}
		return unix.PtraceSyscall(pid, 0)
	case a.cut:
		if err := setLength(pid, k.call.args[2]/2); err != nil {
			return err
		}
		return unix.PtraceSyscall(pid, 0)
	case a.after:
		return unix.PtraceSyscall(pid, 0)
	}
	return t.resume(pid, 0)
}

func (t *tracer) leave(pid int, k *task, info *callInfo) error {
	k.entered = false
	switch {
	case k.then.kill:
		t.killAll()
		return nil
	case k.then.fail != 0:
		if err := setResult(pid, -int64(k.then.fail)); err != nil {
			return err
		}
	case t.clock != 0 && k.call.nr == unix.SYS_CLOCK_GETTIME && k.call.args[0] == unix.CLOCK_REALTIME && !info.failed:
		if err := addSeconds(pid, uintptr(k.call.args[1]), t.clock); err != nil {
			return err
		}
	}
	return t.resume(pid, 0)
}

// threadsOf returns the tasks of a thread's process.
func (t *tracer) threadsOf(pid int) (out []*task) {
	entries, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, e := range entries {
		var tid int
		if _, err := fmt.Sscan(e.Name(), &tid); err == nil && t.tasks[tid] != nil {
			out = append(out, t.tasks[tid])
		}
	}
	return out
}

// String returns the call's number and class.
func (c *call) String() string { return fmt.Sprintf("call %d, %s", c.n, c.class()) }

// class returns the call's name and the kind of its object. It identifies a call across runs with a different order of
// threads.
func (c *call) class() string {
	name := callName(c.nr)
	what := ""
	switch argKind(name) {
	case argPath:
		what = c.text(0)
	case argAtPath:
		what = c.text(1)
	case argFD:
		what, _ = os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", c.pid, int32(c.args[0])))
	}
	if what != "" {
		name += " " + kindOf(what)
	}
	if c.program != "" {
		name = c.program + ": " + name
	}
	return name
}

// text returns the string that an argument points to.
func (c *call) text(arg int) string {
	b := make([]byte, 256)
	n, _ := unix.ProcessVMReadv(c.pid, []unix.Iovec{{Base: &b[0], Len: uint64(len(b))}}, []unix.RemoteIovec{{Base: uintptr(c.args[arg]), Len: len(b)}}, 0)
	if n <= 0 {
		// The page after the string may not be mapped.
		n, _ = unix.PtracePeekData(c.pid, uintptr(c.args[arg]), b[:64])
	}
	s, _, _ := strings.Cut(string(b[:max(n, 0)]), "\x00")
	return s
}
