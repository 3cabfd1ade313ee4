package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/test/vm/job"
)

// machine is a guest before it boots.
type machine struct {
	kernel  image
	guest   string        // the guest's init program
	work    string        // directory of this run; the guest's files in job.Out appear in its subdirectory "out"
	memory  int           // MiB
	limit   time.Duration // for each test binary
	printed bool          // one of its programs printed a line
}

// An emulated processor occasionally hits the breakpoint that the kernel uses to patch its own code, most often at boot.
// A guest with one of these errors can be booted again.
var (
	errBootPanic  = errors.New("the kernel panicked before any program ran")
	errBreakpoint = errors.New("the kernel hit the breakpoint with which it patches its own code")
)

// breakpointPanic matches a panic for that breakpoint, from Linux 6.9 with "Oops: ". Nothing else sets breakpoints in the
// kernel.
var breakpointPanic = regexp.MustCompile(`(?m)^\[[ 0-9.]+\] (Oops: )?int3: 0000 \[#1\]`)

// maxBootAttempts is the maximum number of attempts to boot a guest.
const maxBootAttempts = 3

func (m *machine) out() string { return filepath.Join(m.work, "out") }

// run boots the guest, copies the output of its tests line by line, and returns its exit code.
func (m *machine) run(ctx context.Context, j *job.Job, stdout io.Writer) (int, error) {
	shares := []share{{job.RootTag, "/", true}, {job.OutTag, m.out(), false}}
	for _, s := range j.Writable {
		shares = append(shares, share{s.Tag, s.Dir, false})
	}
	if err := errors.Join(os.MkdirAll(m.out(), 0o755), m.initrd(j)); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	args := m.arguments()
	for _, s := range shares {
		socket, server, err := s.start(ctx, m.work)
		if server != nil {
			defer stop(server)
		}
		if err != nil {
			return 0, err
		}
		args = append(args, "-chardev", "socket,id="+s.tag+",path="+socket, "-device", "vhost-user-fs-pci,chardev="+s.tag+",tag="+s.tag)
	}
	err := m.qemu(ctx, cancel, args, stdout)
	raw, rcErr := os.ReadFile(filepath.Join(m.out(), job.RCFile))
	if err != nil || rcErr != nil {
		return 0, m.noReportError(ctx, err)
	}
	return strconv.Atoi(string(raw))
}

// stop kills a share's server, which has no state to save.
func stop(c *exec.Cmd) {
	_ = c.Process.Kill()
	_ = c.Wait()
}

// errSilent means that the guest printed no line for its time limit. It prints one after each test binary.
var errSilent = errors.New("it was silent for longer than a test binary may take")

func (m *machine) qemu(ctx context.Context, cancel context.CancelCauseFunc, args []string, stdout io.Writer) error {
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", args...)
	var stderr bytes.Buffer
	cmd.Stderr, cmd.SysProcAttr = &stderr, killedWithParent()
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	lines := bufio.NewScanner(pipe) // also drops the serial line's carriage return
	lines.Buffer(nil, 1<<20)
	silence := time.AfterFunc(m.limit, func() { cancel(errSilent) })
	defer silence.Stop()
	for lines.Scan() {
		m.printed = true
		silence.Reset(m.limit)
		fmt.Fprintln(stdout, lines.Text())
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%w %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	return lines.Err()
}

// noReportError returns the reason why a guest ended without a report.
func (m *machine) noReportError(ctx context.Context, err error) error {
	log, _ := os.ReadFile(m.console())
	why := errors.New("the guest switched itself off, or its kernel panicked")
	if cause := context.Cause(ctx); errors.Is(cause, errSilent) {
		why = fmt.Errorf("%w (%v)", cause, m.limit)
	} else if cause != nil {
		why = cause
	} else if err != nil {
		why = err
	} else if !m.printed {
		why = errBootPanic
	} else if breakpointPanic.Match(log) {
		why = errBreakpoint
	}
	return fmt.Errorf("the guest did not report: %w; the last lines of its kernel log:\n%s", why, lastLines(string(log)))
}

// lastLines returns the last 40 lines of a kernel's log, but at least all from the beginning of a panic.
func lastLines(log string) string {
	lines := strings.Split(strings.TrimSpace(log), "\n")
	from := max(0, len(lines)-40)
	if i := slices.IndexFunc(lines, func(l string) bool { return strings.Contains(l, " [#1] ") }); i >= 0 {
		from = min(from, i)
	}
	return strings.Join(lines[from:], "\n")
}

func (m *machine) console() string { return filepath.Join(m.work, "console") }

// arguments returns the arguments of qemu-system-x86_64.
//
// cmpxchg16b is off because QEMU 7.2's emulation sometimes gets its flags wrong, and the kernel's allocator then
// crashes in one boot of four. The processor is an old one: with the newest instructions, which the kernel and programs
// then use, a guest takes a sixth longer. Without address randomization programs start twice as fast. SELinux has no
// policy and denies nothing.
func (m *machine) arguments() []string {
	mem := strconv.Itoa(m.memory) + "M"
	return []string{
		"-accel", "tcg,thread=multi", "-cpu", "Nehalem,-cx16", "-smp", "2", "-m", mem,
		"-object", "memory-backend-memfd,id=mem,share=on,size=" + mem, "-numa", "node,memdev=mem", // virtiofs needs shared memory
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-kernel", m.kernel.bzImage(), "-initrd", filepath.Join(m.work, "initrd"),
		"-append", "console=ttyS0 quiet panic=-1 mitigations=off norandmaps random.trust_cpu=on no_timer_check security=selinux",
		"-chardev", "file,id=console,path=" + m.console(), "-serial", "chardev:console", "-serial", "stdio",
		"-device", "virtio-rng-pci",
	}
}

// initrd writes the initial RAM file system: the guest's program, its job, and the modules that it needs to mount the
// host's files.
func (m *machine) initrd(j *job.Job) error {
	f, err := os.Create(filepath.Join(m.work, "initrd"))
	if err != nil {
		return err
	}
	defer f.Close()
	w := bufio.NewWriter(f)
	a := &archive{w: w}
	for _, d := range []string{"dev", "ro", "new", "changes", "modules"} {
		a.dir(d)
	}
	order, err := loadOrder(m.kernel.modules(), bootModules())
	if err != nil {
		return err
	}
	add := func(name, from string) {
		data, err := os.ReadFile(from)
		if a.err == nil {
			a.err = err
		}
		a.file(name, data)
	}
	for _, file := range order {
		name := "modules/" + filepath.Base(file)
		add(name, filepath.Join(m.kernel.modules(), file))
		j.Boot = append(j.Boot, "/"+name)
	}
	add("init", m.guest)
	text, err := json.Marshal(j)
	if err != nil {
		return err
	}
	a.file(strings.TrimPrefix(job.File, "/"), text)
	return errors.Join(a.close(), w.Flush())
}
