package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/lab"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// optIn asks for the tests of this package.
const optIn = "FAIRLEAD_E2E_DOCKER"

// dockerCLI is the client of Debian's package docker.io.
const dockerCLI = "/usr/bin/docker"

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// bin is the directory of this tree's programs, with the layout of make build.
var bin string

func TestMain(m *testing.M) {
	code := 1
	dir, err := os.MkdirTemp("", "fairlead-docker-")
	if err == nil {
		bin = dir
		code = m.Run()
		err = os.RemoveAll(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// build builds the programs once.
func build(t *testing.T) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(bin, "cni")); err == nil {
		return
	}
	if built := os.Getenv("FAIRLEAD_TEST_PROGRAMS"); built != "" { // in a virtual machine, which is slow
		must(t, os.CopyFS(bin, os.DirFS(built)))
	} else {
		cmd := exec.Command("go", "build", "-o", bin, "./cmd/fairlead", "./cmd/fairlead-cni")
		cmd.Dir, cmd.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("build the programs: %v\n%s", err, out)
		}
	}
	must(t, os.Mkdir(filepath.Join(bin, "cni"), 0o755))
	out, err := exec.Command(filepath.Join(bin, "fairlead-cni"), "--list").Output()
	must(t, err)
	for _, name := range strings.Fields(string(out)) {
		must(t, os.Symlink("../fairlead-cni", filepath.Join(bin, "cni", name)))
	}
	must(t, os.Symlink("../fairlead", filepath.Join(bin, "cni", "ovs")))
}

// grace returns the age after which the driver removes an object that Docker does not know. The start of a container
// takes less.
func grace() string { return kerneltest.Slow(10 * time.Second).String() }

// machine is a host that runs dockerd and the driver.
type machine struct {
	*lab.Host
	t                           *testing.T
	dir                         string
	containerd, dockerd, plugin *lab.Process
}

// newMachine starts dockerd and the driver on a host.
func newMachine(t *testing.T, h *lab.Host) *machine {
	t.Helper()
	m := &machine{Host: h, t: t, dir: t.TempDir()}
	t.Cleanup(m.end)
	m.startPlugin()
	m.startDocker()
	m.importImage()
	return m
}

// newLab creates a host with dockerd, and another one in its network, without either.
func newLab(t *testing.T) (m *machine, outside *lab.Host) {
	t.Helper()
	kerneltest.OptIn(t, optIn)
	build(t)
	l, err := lab.New(t.Context())
	must(t, err)
	t.Cleanup(l.Close)
	h, err := l.Host(t.Context(), "a")
	must(t, err)
	outside, err = l.Host(t.Context(), "out")
	must(t, err)
	return newMachine(t, h), outside
}

func (m *machine) start(name string, argv ...string) *lab.Process {
	m.t.Helper()
	p, err := m.Start(filepath.Join(m.dir, m.Name+"-"+name+".log"), []string{"FAIRLEAD_LIB=", "FAIRLEAD_RUN="}, argv...)
	must(m.t, err)
	return p
}

const socket = "/run/docker.sock"

func (m *machine) startPlugin(flags ...string) {
	m.t.Helper()
	m.plugin = m.start("plugin", append([]string{filepath.Join(bin, "fairlead"), "docker-plugin", "--interval", "1s", "--grace", grace()}, flags...)...)
	m.listens("/run/docker/plugins/fairlead.sock")
}

func (m *machine) startDocker() {
	m.t.Helper()
	if m.containerd == nil {
		m.containerd = m.start("containerd", "containerd", "--address", "/run/cd.sock", "--root", "/var/lib/cd", "--state", "/run/cd")
		m.listens("/run/cd.sock")
	}
	_ = os.Remove(m.Path("/run/docker.pid")) // of a dockerd that was killed
	m.dockerd = m.start("dockerd", "dockerd", "--host", "unix://"+socket, "--pidfile", "/run/docker.pid", "--exec-root", "/run/dx",
		"--storage-driver", "vfs", "--containerd", "/run/cd.sock", "--cgroup-parent", m.cgroup())
	kerneltest.Eventually(m.t, func() error { _, err := m.try("version"); return err })
}

func (m *machine) listens(socket string) {
	m.t.Helper()
	kerneltest.Eventually(m.t, func() error { return kerneltest.Listens(m.Path(socket)) })
}

func (m *machine) cgroup() string { return cgroupOf(m.Name) }

// cgroupOf returns the cgroup of the containers of a host.
func cgroupOf(name string) string { return fmt.Sprintf("/fairlead-docker-%d-%s", os.Getpid(), name) }

// importImage creates the image box from busybox, without a registry.
func (m *machine) importImage() {
	m.t.Helper()
	root := m.t.TempDir()
	must(m.t, os.MkdirAll(filepath.Join(root, "bin"), 0o755))
	raw, err := os.ReadFile("/bin/busybox")
	must(m.t, err)
	must(m.t, os.WriteFile(filepath.Join(root, "bin", "busybox"), raw, 0o755))
	for _, dir := range []string{"tmp", "etc", "proc", "sys", "dev"} {
		must(m.t, os.Mkdir(filepath.Join(root, dir), 0o755))
	}
	for _, applet := range strings.Fields("sh sleep ping ip httpd wget nslookup cat echo") {
		must(m.t, os.Symlink("busybox", filepath.Join(root, "bin", applet)))
	}
	tar := filepath.Join(m.dir, "box.tar")
	out, err := exec.Command("tar", "-C", root, "-cf", tar, ".").CombinedOutput()
	if err != nil {
		m.t.Fatalf("%v: %s", err, out)
	}
	m.docker("import", tar, "box")
}

// try runs docker.
func (m *machine) try(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), kerneltest.Slow(2*time.Minute))
	defer cancel()
	out, err := m.Run(ctx, append([]string{dockerCLI, "-H", "unix://" + socket}, args...)...)
	return strings.TrimSpace(out), err
}

// docker runs docker, which succeeds.
func (m *machine) docker(args ...string) string {
	m.t.Helper()
	out, err := m.try(args...)
	must(m.t, err)
	return out
}

// run starts a container that serves its name over HTTP.
func (m *machine) run(name string, flags ...string) {
	m.t.Helper()
	m.docker(append(append([]string{"run", "--detach", "--name", name, "--init=false"}, flags...), "box", "sh", "-c", serve)...)
}

const serve = `echo "$HOSTNAME" > /tmp/index.html; exec httpd -f -p 80 -h /tmp`

// fairlead runs a command of fairlead on the host.
func (m *machine) fairlead(args ...string) string {
	m.t.Helper()
	out, err := m.Run(m.t.Context(), append([]string{"env", "FAIRLEAD_LIB=", "FAIRLEAD_RUN=", filepath.Join(bin, "fairlead")}, args...)...)
	if err != nil {
		m.t.Errorf("%v: %s", err, out)
	}
	return out
}

// in runs a command in a container until it succeeds.
func (m *machine) in(container string, argv ...string) (out string) {
	m.t.Helper()
	kerneltest.Eventually(m.t, func() (err error) {
		out, err = m.try(append([]string{"exec", container}, argv...)...)
		return err
	})
	return out
}

// fails checks that a command in a container fails.
func (m *machine) fails(container string, argv ...string) {
	m.t.Helper()
	if out, err := m.try(append([]string{"exec", container}, argv...)...); err == nil {
		m.t.Errorf("%s in %s succeeds: %s", strings.Join(argv, " "), container, out)
	}
}

// remove removes all containers, and the driver's networks.
func (m *machine) remove() {
	m.t.Helper()
	if all := strings.Fields(m.docker("ps", "--all", "--quiet")); len(all) > 0 {
		m.docker(append([]string{"rm", "--force"}, all...)...)
	}
	if all := strings.Fields(m.docker("network", "ls", "--quiet", "--filter", "driver=fairlead")); len(all) > 0 {
		m.docker(append([]string{"network", "rm"}, all...)...)
	}
}

// left returns what the driver's networks and endpoints left on the host.
func (m *machine) left() error {
	var errs []error
	for _, pattern := range []string{
		"/run/fairlead/attach/*/*", "/run/fairlead/docker/*/*", "/var/lib/cni/results/*",
		"/var/lib/cni/fairlead/docker/networks/*", "/var/lib/cni/fairlead/docker/pools/*", "/var/lib/cni/fairlead/docker/addresses/*/*",
	} {
		files, err := filepath.Glob(m.Path(pattern))
		for _, f := range files {
			err = errors.Join(err, fmt.Errorf("left: %s", f))
		}
		errs = append(errs, err)
	}
	out, err := m.Run(context.Background(), "ip", "-o", "link")
	errs = append(errs, err)
	for line := range strings.Lines(out) {
		name := strings.Fields(line)[1]
		if name != "lo:" && name != "docker0:" && !strings.HasPrefix(name, "eth") && !strings.HasPrefix(name, "up") {
			errs = append(errs, fmt.Errorf("left: %s", line))
		}
	}
	out, err = m.Run(context.Background(), "nft", "list", "ruleset")
	errs = append(errs, err)
	for line := range strings.Lines(out) {
		if strings.Contains(line, "fairlead docker-") || strings.Contains(line, `"fairlead c`) {
			errs = append(errs, fmt.Errorf("left: %s", line))
		}
	}
	return errors.Join(errs...)
}

// nothingLeft waits until nothing is left: the driver compares its objects with Docker's once a second.
func (m *machine) nothingLeft() {
	m.t.Helper()
	kerneltest.Within(m.t, 20*time.Second, m.left)
}

// end ends what survives dockerd: containers and their shims.
func (m *machine) end() {
	if m.t.Failed() {
		for _, p := range []*lab.Process{m.dockerd, m.plugin} {
			if p != nil {
				log := p.Log()
				m.t.Logf("%s", log[max(0, len(log)-4000):])
			}
		}
	}
	for _, p := range []*lab.Process{m.dockerd, m.containerd, m.plugin} {
		if p != nil {
			p.Kill()
		}
	}
	m.killContainers()
	kerneltest.Eventually(m.t, func() error { return removeCgroups(m.Name) })
}

// killContainers kills all containers and their shims.
func (m *machine) killContainers() {
	_ = killAll(func(pid int) bool {
		mounts, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", pid))
		own, _ := os.Readlink(m.MountNS())
		cmd, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		return mounts != "" && mounts == own && strings.Contains(string(cmd), "containerd-shim")
	})
	_ = killAll(func(pid int) bool {
		cgroups, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		return strings.Contains(string(cgroups), m.cgroup()+"/")
	})
}

// killAll kills the processes that match.
func killAll(match func(pid int) bool) error {
	all, err := os.ReadDir("/proc")
	for _, e := range all {
		if pid, err := strconv.Atoi(e.Name()); err == nil && match(pid) {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		}
	}
	return err
}

// removeCgroups removes the cgroups of the containers of a host.
func removeCgroups(name string) error {
	dirs, err := filepath.Glob("/sys/fs/cgroup/*" + cgroupOf(name))
	errs := []error{err}
	for _, dir := range append(dirs, "/sys/fs/cgroup"+cgroupOf(name)) {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if e.IsDir() {
				errs = append(errs, os.Remove(filepath.Join(dir, e.Name())))
			}
		}
		if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
