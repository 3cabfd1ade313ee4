// Package kerneltest gives tests new network namespaces and a text dump of them. It leaves the machine as it was: a
// namespace ends with its test.
package kerneltest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Host moves the test to a thread of its own in a new network namespace with lo up. Everything that the test calls,
// including commands, sees that namespace as the host. The thread ends with the test.
func Host(t testing.TB) {
	t.Helper()
	needRoot(t)
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("unshare network namespace: %v", err)
	}
	if err := setUp("lo"); err != nil {
		t.Fatalf("set lo up: %v", err)
	}
}

// PrivateMounts gives the test a thread with mounts of its own, which end with the test.
func PrivateMounts(t testing.TB) {
	t.Helper()
	needRoot(t)
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	if err := errors.Join(unix.Unshare(unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")); err != nil {
		t.Fatalf("unshare mount namespace: %v", err)
	}
}

// setUp sets a link up (ioctl SIOCSIFFLAGS, netdevice(7)).
func setUp(link string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	flags, err := unix.NewIfreq(link)
	if err != nil {
		return err
	}
	flags.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, flags)
}

// Netns creates a network namespace and returns the path that it is mounted on.
func Netns(t testing.TB) string {
	t.Helper()
	needRoot(t)
	path := filepath.Join(t.TempDir(), "netns")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unshareNetns(path); err != nil {
		t.Fatalf("make network namespace: %v", err)
	}
	t.Cleanup(func() { Gone(t, path) })
	return path
}

// unshareNetns mounts a new network namespace on a file.
func unshareNetns(path string) error {
	done := make(chan error)
	go func() { // the thread ends with the goroutine
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() { // the main thread never ends, and would keep the namespace
			defer runtime.UnlockOSThread()
			done <- unshareNetns(path) // on another thread, because this goroutine has the main one
			return
		}
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			err = unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, "")
		}
		done <- err
	}()
	return <-done
}

// Gone unmounts a namespace that Netns created. The path is an empty file then.
func Gone(t testing.TB, path string) {
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && err != unix.EINVAL && err != unix.ENOENT {
		t.Errorf("unmount %s: %v", path, err)
	}
}

func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test needs root: it makes network namespaces")
	}
}

// Run runs a command in the test's host and returns its output. It refuses a command that would work on the machine's own
// network because the test has no host yet.
func Run(t testing.TB, argv ...string) string {
	t.Helper()
	if slices.Contains(networkCommands(), filepath.Base(argv[0])) {
		if ns, err := os.Readlink("/proc/thread-self/ns/net"); err != nil || ns == machineNetns {
			t.Fatalf("%s: this test has no host: call kerneltest.Host first (%v)", strings.Join(argv, " "), err)
		}
	}
	out, err := output(argv)
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, out)
	}
	return string(out)
}

func output(argv []string) ([]byte, error) { return outputOf(exec.Command(argv[0], argv[1:]...)) }

// outputOf runs a command. It returns stderr only if the command fails: ip succeeds, and prints an error, when another
// namespace ends while it lists links.
func outputOf(cmd *exec.Cmd) ([]byte, error) {
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		out = append(out, exit.Stderr...)
	}
	return out, err
}

// networkCommands returns the commands that change the network namespace that they run in.
func networkCommands() []string {
	return []string{"ip", "tc", "bridge", "nft", "iptables", "ip6tables", "sysctl", "ethtool"}
}

// machineNetns is the network namespace of the machine.
var machineNetns, _ = os.Readlink("/proc/1/ns/net")

// In runs a command in a network namespace and returns its output.
func In(t testing.TB, netns string, argv ...string) string {
	t.Helper()
	var out []byte
	var err error
	onThread(t, netns, func() { out, err = output(argv) })
	if err != nil {
		t.Fatalf("in %s: %s: %v\n%s", netns, strings.Join(argv, " "), err, out)
	}
	return string(out)
}

// onThread calls f on this thread while it is in a network namespace ("" is the one that it is in). Commands that f starts
// are there, too, and keep the thread's other namespaces. A thread that cannot return is not used again.
func onThread(t testing.TB, netns string, f func()) {
	t.Helper()
	if netns == "" {
		f()
		return
	}
	runtime.LockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	defer home.Close()
	target, err := os.Open(netns)
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	if err := unix.Setns(int(target.Fd()), unix.CLONE_NEWNET); err != nil {
		t.Fatalf("enter %s: %v", netns, err)
	}
	f()
	if err := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); err != nil {
		t.Fatalf("leave %s: %v", netns, err)
	}
	runtime.UnlockOSThread()
}

// dumped are the commands of a dump, with the input of those that run several.
func dumped() [][2]string {
	return [][2]string{
		{"ip -o -d link show"},
		{"ip -o -force -batch -", "addr show\nroute show table all\nrule show\nneigh show nud permanent\n"},
		{"ip -6 -o -force -batch -", "route show table all\nrule show\n"},
		{"/sbin/bridge vlan show"}, {"tc qdisc show"}, {"nft list ruleset"},
	}
}

// Dump returns a namespace as text ("" is the test's host): links, addresses, routes, rules, neighbours, bridge VLANs
// and the nftables ruleset. It omits the links that the kernel adds with a tunnel module.
func Dump(t testing.TB, netns string) string {
	t.Helper()
	var b strings.Builder
	onThread(t, netns, func() {
		for _, c := range dumped() {
			cmd := exec.Command(strings.Fields(c[0])[0], strings.Fields(c[0])[1:]...)
			if c[1] != "" {
				cmd.Stdin = strings.NewReader(c[1])
			}
			out, err := outputOf(cmd)
			if err != nil {
				out = fmt.Appendf(out, "(%v)\n", err)
			}
			fmt.Fprintf(&b, "# %s\n%s", c[0], fallback.ReplaceAll(out, nil))
		}
	})
	return b.String()
}

// fallback matches the links that a tunnel module adds to every namespace when any test loads it.
var fallback = regexp.MustCompile(`(?m)^\d+: (tunl0|sit0|ip6tnl0|gre0|gretap0|erspan0|ip6gre0|ip_vti0|ip6_vti0)@NONE: .*\n`)

// CopyFiles copies the descriptors of this process's open files below a directory, as a process that is being started
// has them until its program runs. The copies end with the test.
func CopyFiles(t testing.TB, dir string) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	copies := 0
	for _, e := range entries {
		file, err := os.Readlink("/proc/self/fd/" + e.Name())
		fd, err2 := strconv.Atoi(e.Name())
		if err != nil || err2 != nil || !strings.HasPrefix(file, dir+"/") {
			continue // also a file that was closed meanwhile
		}
		if fd, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0); err == nil {
			t.Cleanup(func() { unix.Close(fd) })
			copies++
		}
	}
	if copies == 0 {
		t.Fatalf("no file below %s is open", dir)
	}
}
