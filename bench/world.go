package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/fairlead/fairlead/bench/figures"
)

// bench is the prepared machine: separate mounts in which hosts are created.
type bench struct {
	ctx      context.Context
	options  options
	dir      string // the benchmark's own directory
	programs string
}

// prepare mounts directories as on any machine: /run is in memory and /var/lib is on a disk.
func prepare(ctx context.Context, o options) (*bench, error) {
	b := &bench{ctx: ctx, options: o, dir: os.Getenv(insideVariable), programs: o.programs}
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return nil, err
	}
	lib := filepath.Join(b.dir, "lib")
	if err := os.MkdirAll(lib, 0o755); err != nil {
		return nil, err
	}
	if err := syscall.Mount("bench", "/run", "tmpfs", 0, ""); err != nil {
		return nil, fmt.Errorf("mount over /run: %w", err)
	}
	if err := syscall.Mount(lib, "/var/lib", "", syscall.MS_BIND, ""); err != nil {
		return nil, fmt.Errorf("mount over /var/lib: %w", err)
	}
	return b, nil
}

const netnsDir = "/run/netns"

// world is the environment of one case: a host for each side, and containers.
type world struct {
	*bench
	c     benchCase
	sides []*side
	netns map[string]string // name -> path

	served []*exec.Cmd // other programs that run on hosts
}

// open creates a fresh world for a case.
func (b *bench) open(c benchCase) (w *world, err error) {
	w = &world{bench: b, c: c, netns: map[string]string{}}
	for _, d := range []string{"/run/fairlead", "/run/cni", "/run/flannel", "/var/lib/cni"} {
		if err := os.RemoveAll(d); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(netnsDir, 0o755); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	for _, k := range kinds() {
		if b.wants(c, k.name) {
			s, err := w.start(k)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", k.name, err)
			}
			w.sides = append(w.sides, s)
		}
	}
	if c.before != nil {
		err = c.before(w)
	}
	return w, err
}

// close ends the sides and the namespaces. The kernel removes a large world in the background, and a new namespace has
// to wait for that. So close creates one to wait for the end.
func (w *world) close() {
	for _, s := range w.sides {
		s.stop()
	}
	for _, cmd := range w.served {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	many := len(w.netns)
	for _, path := range w.netns {
		_ = syscall.Unmount(path, syscall.MNT_DETACH)
		_ = os.Remove(path)
	}
	w.netns = nil
	if many > 50 {
		_ = makeNetns(map[string]string{"settled": netnsDir + "/settled"})
		_ = syscall.Unmount(netnsDir+"/settled", syscall.MNT_DETACH)
	}
}

// namespaces creates the named namespaces that do not exist yet.
func (w *world) namespaces(names ...string) error {
	missing := map[string]string{}
	for _, n := range names {
		if w.netns[n] == "" {
			missing[n] = filepath.Join(netnsDir, n)
			w.netns[n] = missing[n]
		}
	}
	return makeNetns(missing)
}

// makeNetns mounts new namespaces on paths.
func makeNetns(paths map[string]string) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		for _, path := range paths {
			err := os.WriteFile(path, nil, 0o600)
			if err == nil {
				err = syscall.Unshare(syscall.CLONE_NEWNET)
			}
			if err == nil {
				err = syscall.Mount("/proc/thread-self/ns/net", path, "", syscall.MS_BIND, "")
			}
			if err != nil {
				done <- fmt.Errorf("make network namespace %s: %w", path, err)
				return
			}
		}
		done <- nil
	}()
	return <-done
}

// inside runs a command in a namespace.
func inside(netns, stdin string, argv ...string) error {
	cmd := exec.Command("nsenter", append([]string{"--net=" + netns, "--"}, argv...)...)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s in %s: %w: %s", strings.Join(argv, " "), netns, err, out)
	}
	return nil
}

// lacks reports whether the kernel lacks a link type. It tries to create one.
func (b *bench) lacks(typ string) bool {
	more, ok := map[string]string{
		"ipvlan": "link try0 type ipvlan", "vlan": "link try0 type vlan id 5", "dummy": "type dummy", "vrf": "type vrf table 5",
	}[typ]
	if !ok {
		return false
	}
	w := &world{bench: b, netns: map[string]string{}}
	defer w.close()
	if os.MkdirAll(netnsDir, 0o755) != nil || w.namespaces("try") != nil {
		return true
	}
	return inside(w.netns["try"], "link add try0 type veth peer name try1\nlink add try2 "+more, "ip", "-batch", "-") != nil
}

// machine describes the machine.
func machine() string {
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	kernel := strings.SplitN(strings.TrimSpace(string(release)), "-", 2)[0]
	return fmt.Sprintf("%s, %d processors (%s), %s of memory, Linux %s, %s.\nMeasured on %s",
		virtual(), runtime.NumCPU(), field("/proc/cpuinfo", "model name"), memory(), kernel, runtime.Version(), figures.Moment())
}

func virtual() string {
	if strings.Contains(" "+field("/proc/cpuinfo", "flags")+" ", " hypervisor ") {
		return "a virtual machine"
	}
	return "a machine"
}

// field returns the first value of a name in a file of /proc.
func field(file, name string) string {
	raw, err := os.ReadFile(file)
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(raw)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return "unknown"
}

func memory() string {
	words := strings.Fields(field("/proc/meminfo", "MemTotal"))
	kib, err := strconv.Atoi(append(words, "")[0])
	if err != nil {
		return "unknown"
	}
	return fmt.Sprintf("%d GiB", (kib+1<<19)>>20)
}

var errEnded = errors.New("ended before it answered")
