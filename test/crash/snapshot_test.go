package crash

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// A snapshot is the whole machine as text: both namespaces, and the files below the state directories. It has the
// content of kerneltest's dump with sysctls and filters. It uses fewer commands, because a run takes ten thousand
// snapshots.

// dumpCommands returns the commands of a snapshot of the calling thread's namespace. Each reads its requests from
// standard input.
func dumpCommands() []struct {
	argv  []string
	lines string
} {
	filters := ""
	devices, _ := net.Interfaces() // asking for one that does not exist would load a module, which takes longer than all the rest
	for _, dev := range devices {
		filters += "filter show dev " + dev.Name + "\nfilter show dev " + dev.Name + " ingress\n"
	}
	return []struct {
		argv  []string
		lines string
	}{
		{[]string{"ip", "-d", "-o", "-force", "-batch", "-"}, "link show\naddr show\nroute show table all\nrule show\nneigh show nud permanent\nneigh show proxy\n"},
		{[]string{"ip", "-6", "-o", "-force", "-batch", "-"}, "route show table all\nrule show\n"},
		{[]string{"tc", "-force", "-batch", "-"}, "qdisc show\n" + filters},
		{[]string{"nft", "list", "ruleset"}, ""},
	}
}

// namespace returns the state of the calling thread's namespace as text, without what changes by itself.
func namespace() string {
	var b strings.Builder
	for _, l := range dumpCommands() {
		cmd := exec.Command(l.argv[0], l.argv[1:]...)
		cmd.Stdin = strings.NewReader(l.lines)
		out, _ := cmd.Output() // fails if the device does not exist here
		b.WriteString("# " + l.argv[0] + "\n")
		b.WriteString(kerneltest.Mask(string(out), kerneltest.Timers, kerneltest.Carrier, kerneltest.IPv6State))
	}
	b.WriteString("# sysctl\n")
	for _, top := range []string{"net/ipv4", "net/ipv6", "net/core"} {
		sysctls(&b, filepath.Join("/proc/sys", top))
	}
	return b.String()
}

// sysctls writes every setting below a directory.
func sysctls(b *strings.Builder, dir string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if e.IsDir() {
			sysctls(b, path)
			continue
		}
		if strings.Contains(path, "/neigh/") || slices.Contains([]string{"stable_secret", "flush", "tcp_available_ulp", "netdev_rss_key"}, e.Name()) {
			continue
		}
		if raw, err := readAt(path); err == nil {
			fmt.Fprintf(b, "%s = %s\n", path, raw)
		}
	}
}

// readAt reads a small file with two calls.
func readAt(path string) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	b := make([]byte, 512)
	n, err := unix.Read(fd, b)
	return bytes.TrimSpace(b[:max(n, 0)]), err
}

// netnsThread is a thread in another network namespace. It runs functions until it is closed.
type netnsThread struct{ funcs chan func() }

func newNetnsThread(netns string) (*netnsThread, error) {
	e := &netnsThread{make(chan func())}
	ready := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		fd, err := unix.Open(netns, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			err = unix.Setns(fd, unix.CLONE_NEWNET)
			_ = unix.Close(fd)
		}
		ready <- err
		for f := range e.funcs {
			f()
		}
	}()
	return e, <-ready
}

// do runs f on that thread.
func (e *netnsThread) do(f func()) {
	done := make(chan struct{})
	e.funcs <- func() { f(); close(done) }
	<-done
}

func (e *netnsThread) close() { close(e.funcs) }

// stateDirs are the directories of the machine's state.
var stateDirs = []string{"run", "lib", "ipam", "cache", "leases"}
