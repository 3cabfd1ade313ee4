package plugins_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/netns"
	"github.com/fairlead/fairlead/libcni"
	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/plugins"
	"github.com/fairlead/fairlead/skel"
)

// The environment of the soak test's processes.
const (
	soakVariable   = "FAIRLEAD_SOAK"        // duration: "10m"
	soakChild      = "FAIRLEAD_SOAK_CHILD"  // directory: this is the runtime
	forgerVariable = "FAIRLEAD_SOAK_FORGER" // this is the container that forges replies
	soakers        = 64                     // goroutines, each with a container
	fewSoakers     = 16                     // of a short run, because 64 keep the kernel's network lock from other tests for minutes
	hostile        = 4                      // containers that forge replies
	panicIPAM      = "panicking-ipam"       // panics inside the container's namespace
)

// TestSoak runs plugins inside one process from many goroutines, with cancellations, panics and containers that forge
// netlink replies. After each operation the thread is in the host's namespace, and from time to time all threads are.
func TestSoak(t *testing.T) {
	t.Parallel()
	duration := os.Getenv(soakVariable)
	if duration == "" {
		duration = "4s"
	}
	// A process with its own namespaces: its new threads must not begin in the machine's.
	cmd := exec.CommandContext(t.Context(), "unshare", "--net", "--mount", os.Args[0], "-test.run=^TestSoakChild$", "-test.v", "-test.timeout=2h")
	cmd.Env = append(os.Environ(), soakVariable+"="+duration, soakChild+"="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "operations") {
			t.Log(strings.TrimSpace(line))
		}
	}
}

// soak is the runtime of TestSoakChild.
type soak struct {
	*testing.T
	lib    *libcni.CNIConfig
	list   *libcni.NetworkConfigList
	broken *libcni.NetworkConfigList // with panicIPAM
	home   string                    // the host's namespace
	busy   sync.RWMutex              // operations hold it for reading
	count  int                       // of goroutines

	done, cancelled, panicked, failed atomic.Int64
}

func TestSoakChild(t *testing.T) {
	dir := kerneltest.OptIn(t, soakChild) // TestSoak sets it
	duration, err := time.ParseDuration(os.Getenv(soakVariable))
	if err != nil {
		t.Fatal(err)
	}
	s := newSoak(t, dir)
	if s.count = soakers; duration < time.Minute {
		s.count = fewSoakers
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var all sync.WaitGroup
	for i := range s.count {
		path := filepath.Join(dir, "netns", strconv.Itoa(i))
		if err := netns.Create("", path); err != nil {
			t.Fatal(err)
		}
		if i < hostile {
			s.forge(path)
		}
		all.Go(func() { s.run(ctx, i, path) })
	}
	longest := duration + kerneltest.Slow(20*time.Second)
	for began := time.Now(); time.Since(began) < duration || s.missing() != "" && time.Since(began) < longest; {
		time.Sleep(200 * time.Millisecond)
		s.checkThreads()
	}
	stop()
	all.Wait()
	s.checkThreads()
	goroutines, files := runtime.NumGoroutine(), openFiles(t)
	t.Logf("%d operations succeeded, %d were cancelled, %d panicked; %d goroutines and %d files at the end", s.done.Load(), s.cancelled.Load(), s.panicked.Load(), goroutines, files)
	if n := s.failed.Load(); n > 0 {
		t.Errorf("%d operations failed", n)
	}
	if m := s.missing(); m != "" {
		t.Errorf("too few operations: %s", m)
	}
	if goroutines > 20 || files > 60 {
		t.Error("goroutines or files leak")
	}
	if left := kerneltest.Run(t, "ip", "-br", "link", "show", "type", "veth"); left != "" {
		t.Errorf("links remain:\n%s", left)
	}
}

// missing returns what the test has not done yet, or "".
func (s *soak) missing() string {
	switch {
	case s.done.Load() < int64(s.count):
		return fmt.Sprintf("fewer than %d succeeded", s.count)
	case s.panicked.Load() == 0:
		return "none panicked"
	case s.cancelled.Load() == 0:
		return "none was cancelled"
	}
	return ""
}

func newSoak(t *testing.T, dir string) *soak {
	self, err := os.Executable()
	bin := filepath.Join(dir, "bin")
	err = errors.Join(err, os.MkdirAll(bin, 0o755), os.MkdirAll(filepath.Join(dir, "netns"), 0o755), os.Setenv("FAIRLEAD_RUN", filepath.Join(dir, "run")))
	for _, name := range []string{"bridge", "host-local", "bandwidth", "portmap", panicIPAM} {
		err = errors.Join(err, os.Symlink(self, filepath.Join(bin, name)))
	}
	if err != nil {
		t.Fatal(err)
	}
	kerneltest.Run(t, "ip", "link", "set", "lo", "up")
	panicking := plugin.IPAM{Plugin: skel.Plugin{Name: panicIPAM, Funcs: skel.CNIFuncs{
		Add: func(_ context.Context, args *skel.CmdArgs) (*cni.Result, error) { return nil, panicInside(args.Netns) },
		Del: func(context.Context, *skel.CmdArgs) error { return nil },
	}}}
	exec := plugins.In(plugin.Env{IPAM: append(plugins.IPAM(), panicking)})
	s := &soak{T: t, lib: libcni.NewCNIConfigWithCacheDir([]string{bin}, filepath.Join(dir, "cache"), exec), home: threadNetns(t)}
	const conf = `{"cniVersion": "1.1.0", "name": "soak", "plugins": [
		{"type": "bridge", "bridge": "soak0", "isGateway": true, "ipMasq": true, "ipam": %s},
		{"type": "portmap", "capabilities": {"portMappings": true}},
		{"type": "bandwidth", "ingressRate": 1000000, "ingressBurst": 1000000}]}`
	s.list, err = libcni.ConfListFromBytes(fmt.Appendf(nil, conf, `{"type": "host-local", "subnet": "10.9.0.0/16", "dataDir": "`+dir+`/ipam", "routes": [{"dst": "0.0.0.0/0"}]}`))
	if err == nil {
		s.broken, err = libcni.ConfListFromBytes(fmt.Appendf(nil, conf, `{"type": "`+panicIPAM+`"}`))
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// panicInside panics on a thread that is in the container's namespace.
func panicInside(path string) error {
	n, err := netns.Open(path)
	if err != nil {
		return err
	}
	defer n.Close()
	return n.Do(func() error { panic("injected") })
}

// run attaches and detaches one container until the context ends. As a runtime does, it repeats a DEL that did not end in
// time.
func (s *soak) run(ctx context.Context, i int, path string) {
	rt := &libcni.RuntimeConf{ContainerID: fmt.Sprint("c", i), NetNS: path, IfName: "eth0", CapabilityArgs: map[string]any{
		"portMappings": []map[string]any{{"hostPort": 20000 + i, "containerPort": 80, "protocol": "tcp"}},
	}}
	for ctx.Err() == nil {
		if rand.N(8) == 0 {
			s.panics(rt)
		}
		limit := time.Minute
		if rand.N(3) == 0 {
			limit = rand.N(20 * time.Millisecond)
		}
		s.operation(limit, "ADD", func(ctx context.Context) error { _, err := s.lib.AddNetworkList(ctx, s.list, rt); return err }, func() {
			s.operation(time.Minute, "CHECK", func(ctx context.Context) error { return s.lib.CheckNetworkList(ctx, s.list, rt) }, func() {})
		})
		for deleted := false; !deleted && !s.Failed(); {
			s.operation(time.Minute, "DEL", func(ctx context.Context) error { return s.lib.DelNetworkList(ctx, s.list, rt) }, func() { deleted = true })
		}
	}
}

func (s *soak) panics(rt *libcni.RuntimeConf) {
	s.busy.RLock()
	defer s.busy.RUnlock()
	other := *rt
	other.IfName = "broken0"
	_, err := s.lib.AddNetworkList(context.Background(), s.broken, &other)
	if err == nil || !strings.Contains(err.Error(), "panic") {
		s.Errorf("a plugin that panics: %v", err)
	}
	s.panicked.Add(1)
	if err := s.lib.DelNetworkList(context.Background(), s.broken, &other); err != nil {
		s.Errorf("DEL after a panic: %v", err)
	}
}

// operation runs one operation, then asserts its thread's namespace, and calls next after a success.
func (s *soak) operation(limit time.Duration, verb string, do func(context.Context) error, next func()) {
	s.busy.RLock()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	runtime.LockOSThread()
	err := do(ctx)
	if now := threadNetns(s.T); now != s.home {
		s.Errorf("after %s the thread is in %s, want %s", verb, now, s.home)
	}
	runtime.UnlockOSThread()
	s.busy.RUnlock()
	ended := ctx.Err() != nil || limit < time.Minute // a lock's wait ends before the deadline
	cancel()
	switch {
	case err == nil:
		s.done.Add(1)
		next()
	case ended:
		s.cancelled.Add(1)
	default:
		s.failed.Add(1)
		s.Errorf("%s: %v", verb, err)
	}
}

// checkThreads asserts the namespace of every thread while no operation runs.
func (s *soak) checkThreads() {
	s.busy.Lock()
	defer s.busy.Unlock()
	kerneltest.ThreadsLeave(s.T, func(netns string) bool { return netns != s.home })
}

func threadNetns(t *testing.T) string {
	link, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	return link
}

func openFiles(t *testing.T) int {
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}

// forge starts a process in a container's namespace that sends forged replies to every netlink socket there.
func (s *soak) forge(path string) {
	cmd := exec.CommandContext(s.Context(), "nsenter", "--net="+path, os.Args[0], "-test.run=^TestForger$")
	cmd.Env = append(os.Environ(), forgerVariable+"=1")
	if err := cmd.Start(); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
}

// TestForger is the process of forge.
func TestForger(t *testing.T) {
	kerneltest.OptIn(t, forgerVariable) // TestSoakChild sets it
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	for parent := os.Getppid(); os.Getppid() == parent; time.Sleep(time.Millisecond) {
		raw, err := os.ReadFile("/proc/self/net/netlink")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(raw)) {
			f := strings.Fields(line) // sk, Eth, Pid, ...
			port, err := strconv.ParseUint(f[2], 10, 32)
			if err != nil || port == 0 {
				continue
			}
			for seq := range uint32(8) { // NLMSG_ERROR with EPERM
				msg := binary.NativeEndian.AppendUint32(nil, 36)
				msg = binary.NativeEndian.AppendUint16(msg, unix.NLMSG_ERROR)
				msg = binary.NativeEndian.AppendUint16(msg, 0)
				msg = binary.NativeEndian.AppendUint32(msg, seq)
				msg = append(msg, make([]byte, 4)...)
				msg = append(binary.NativeEndian.AppendUint32(msg, ^uint32(0)), make([]byte, 16)...)
				_ = unix.Sendto(fd, msg, unix.MSG_DONTWAIT, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Pid: uint32(port)})
			}
		}
	}
}
