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

// Addresses of the host and of its neighbour, which represents the outside world.
const (
	hostV4, outsideV4 = "198.51.100.2", "198.51.100.1" // RFC 5737
	hostV6, outsideV6 = "2001:db8::2", "2001:db8::1"   // RFC 3849
)

// host is a simulated machine with its own network, processes, mounts, and file system. Its neighbour in the namespace
// outside has no route to the containers.
type host struct {
	name    string
	pid     int
	outside string // path of the neighbour's network namespace
}

// startHost starts a host with some of the machine's directories mounted. It ends with the test, together with all its
// processes.
func startHost(t *testing.T, binds map[string]string) *host {
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
	stdin, err := init.StdinPipe() // closing it ends the host
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
		t.Fatalf("the host did not start: %q: %v", line, err)
	}
	h.pid = init.Process.Pid
}

// link connects the host to its neighbour.
func (h *host) link(t *testing.T) {
	run := func(netns string, lines ...string) {
		for _, l := range lines {
			kerneltest.In(t, netns, strings.Fields("ip "+l)...)
		}
	}
	run(h.netns(), "link set lo up", "link add up0 type veth peer name up0 netns "+h.outside,
		"link set up0 addrgenmode none", // a link-local address would appear late and count as a difference
		"addr add "+hostV4+"/24 dev up0", "addr add "+hostV6+"/64 dev up0 nodad", "link set up0 up")
	run(h.outside, "link set lo up", "addr add "+outsideV4+"/24 dev up0", "addr add "+outsideV6+"/64 dev up0 nodad", "link set up0 up")
	run(h.netns(), "route add default via "+outsideV4, "route add default via "+outsideV6)
}

func (h *host) netns() string { return fmt.Sprintf("/proc/%d/ns/net", h.pid) }

// path returns the machine's path of a file on the host.
func (h *host) path(file string) string {
	return filepath.Join("/proc", strconv.Itoa(h.pid), "root", file)
}

// nsenter returns the command line that runs a command on the host.
func (h *host) nsenter(argv ...string) []string {
	return append([]string{"nsenter", "--target", strconv.Itoa(h.pid), "--mount", "--net", "--pid", "--uts", "--ipc", "--"}, argv...)
}

// nsenterOutside returns the command line that runs a command on the host's neighbour.
func (h *host) nsenterOutside(argv ...string) []string {
	return append([]string{"nsenter", "--net=" + h.outside, "--"}, argv...)
}

// commandTimeout limits the run time of a command.
const commandTimeout = 2 * time.Minute

// run runs a command and returns what it printed on standard output.
func run(argv ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), kerneltest.Slow(commandTimeout))
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

func (h *host) run(argv ...string) (string, error) { return run(h.nsenter(argv...)...) }

// daemon starts a long-running program, and returns its process ID on the host. The program ends with the host.
func (h *host) daemon(t *testing.T, log string, argv ...string) (pid string) {
	t.Helper()
	// The shell prints its process ID on the host and then becomes the program.
	argv = append([]string{"sh", "-c", `echo $$; exec "$0" "$@" 2>>` + log + ` >&2 </dev/null`}, argv...)
	argv = h.nsenter(argv...)
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

// write writes a file on the host.
func (h *host) write(t *testing.T, file, text string) {
	t.Helper()
	if _, err := h.run("mkdir", "-p", filepath.Dir(file)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(h.path(file), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// cgroup is the parent of the cgroups of all containers on the host.
func (h *host) cgroup() string { return "/" + h.name }

// removeCgroups removes the cgroups that killed containers leave, children first. It retries, because a cgroup counts
// an exited process a moment longer.
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

// removeTree removes a tree of directories only. The kernel removes the files of a cgroup together with its directory.
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
