package e2e

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// Addresses of the host and of its neighbour, which stands for all others.
const (
	hostV4, outsideV4 = "198.51.100.2", "198.51.100.1" // RFC 5737
	hostV6, outsideV6 = "2001:db8::2", "2001:db8::1"   // RFC 3849
)

// host is a machine of its own: network, processes, mounts, and file system.
// outside is its neighbour, and knows no way to its containers.
type host struct {
	name    string
	pid     int
	outside string // path of the namespace
}

// newHost starts a host that sees some of the machine's directories; it ends
// with the test, whatever runs there.
func newHost(t *testing.T, binds map[string]string) *host {
	t.Helper()
	h := &host{name: hostName(), outside: kerneltest.Netns(t)}
	h.start(t, binds)
	h.link(t)
	return h
}

func hostName() string { return fmt.Sprintf("e2e-%d-%d", os.Getpid(), time.Now().UnixNano()%1e9) }

func (h *host) start(t *testing.T, binds map[string]string) {
	var lines string
	for from, to := range binds {
		lines += from + "=" + to + "\n"
	}
	init := exec.Command("/proc/self/exe")
	init.Env = append(os.Environ(), initVariable+"="+h.name, bindVariable+"="+lines)
	init.Stderr = os.Stderr
	init.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC}
	stdin, err := init.StdinPipe() // its end is the host's end
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := init.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := init.Start(); err != nil {
		t.Fatalf("start a host: %v", err)
	}
	t.Cleanup(func() {
		err := errors.Join(stdin.Close(), init.Wait(), h.removeCgroups())
		if err != nil {
			t.Errorf("end the host: %v", err)
		}
	})
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("the host does not come up: %q: %v", line, err)
	}
	h.pid = init.Process.Pid
}

// link joins host and neighbour.
func (h *host) link(t *testing.T) {
	run := func(netns string, lines ...string) {
		for _, l := range lines {
			kerneltest.In(t, netns, strings.Fields("ip "+l)...)
		}
	}
	run(h.netns(), "link set lo up", "link add up0 type veth peer name up0 netns "+h.outside,
		"link set up0 addrgenmode none", // its own address would come late, and be a difference
		"addr add "+hostV4+"/24 dev up0", "addr add "+hostV6+"/64 dev up0 nodad", "link set up0 up")
	run(h.outside, "link set lo up", "addr add "+outsideV4+"/24 dev up0", "addr add "+outsideV6+"/64 dev up0 nodad", "link set up0 up")
	run(h.netns(), "route add default via "+outsideV4, "route add default via "+outsideV6)
}

func (h *host) netns() string { return fmt.Sprintf("/proc/%d/ns/net", h.pid) }

// path is where the machine sees a file of the host.
func (h *host) path(file string) string {
	return filepath.Join("/proc", strconv.Itoa(h.pid), "root", file)
}

// within is the command that runs another in the host.
func (h *host) within(argv ...string) []string {
	return append([]string{"nsenter", "--target", strconv.Itoa(h.pid), "--mount", "--net", "--pid", "--uts", "--ipc", "--"}, argv...)
}

// beyond is the command that runs another at its neighbour.
func (h *host) beyond(argv ...string) []string {
	return append([]string{"nsenter", "--net=" + h.outside, "--"}, argv...)
}

// patience is how long a command may take.
const patience = 2 * time.Minute

// run runs a command and returns what it printed on standard output.
func run(argv ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), kerneltest.Slow(patience))
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s: %w: %s%s", strings.Join(argv, " "), err, out.String(), errs.String())
	}
	return out.String(), nil
}

func (h *host) run(argv ...string) (string, error) { return run(h.within(argv...)...) }

// daemon starts a program that stays, and returns its process in the host. It
// ends with the host.
func (h *host) daemon(t *testing.T, log string, argv ...string) (pid string) {
	t.Helper()
	// The shell says its process ID within the host and becomes the program.
	argv = append([]string{"sh", "-c", `echo $$; exec "$0" "$@" 2>>` + log + ` >&2 </dev/null`}, argv...)
	argv = h.within(argv...)
	cmd := exec.Command(argv[0], argv[1:]...)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid, err = bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("start %s: %v", argv[0], err)
	}
	go func() { _ = cmd.Wait() }()
	return strings.TrimSpace(pid)
}

// write writes a file of the host.
func (h *host) write(t *testing.T, file, text string) {
	t.Helper()
	if _, err := h.run("mkdir", "-p", filepath.Dir(file)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(h.path(file), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// cgroup is the parent of all cgroups of the host's containers.
func (h *host) cgroup() string { return "/" + h.name }

// removeCgroups takes away what killed containers leave of cgroups, from the
// leaves up. A process that has ended may count a moment longer.
func (h *host) removeCgroups() (err error) {
	for range 100 {
		err = nil
		parents, globErr := filepath.Glob("/sys/fs/cgroup/*" + h.cgroup())
		if globErr != nil {
			return globErr
		}
		for _, p := range append(parents, "/sys/fs/cgroup"+h.cgroup()) {
			err = errors.Join(err, removeTree(p))
		}
		if err == nil {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return err
}

// removeTree removes directories only: files of a cgroup go with it.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if e.IsDir() {
			err = errors.Join(err, removeTree(filepath.Join(dir, e.Name())))
		}
	}
	if rm := syscall.Rmdir(dir); rm != nil && !errors.Is(rm, fs.ErrNotExist) {
		err = errors.Join(err, fmt.Errorf("remove %s: %w", dir, rm))
	}
	return err
}
