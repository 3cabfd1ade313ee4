package e2e

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// These variables make the test binary run as process 1 of a host.
const (
	initVariable = "FAIRLEAD_E2E_INIT"  // the host's name
	bindVariable = "FAIRLEAD_E2E_BINDS" // one FROM=TO per line: directories of the machine to mount on the host
)

func TestMain(m *testing.M) {
	if name := os.Getenv(initVariable); name != "" {
		if err := runInit(name, os.Getenv(bindVariable)); err != nil {
			fmt.Fprintln(os.Stderr, "process 1 of the host:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// runInit sets up the host's file system, prints "ready", and reaps processes until the test ends. When it exits, the
// kernel kills every process of the host.
func runInit(name, binds string) error {
	if err := errors.Join(syscall.Sethostname([]byte(name)), setUpRoot(binds)); err != nil {
		return err
	}
	fmt.Println("ready")
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	for {
		var status syscall.WaitStatus
		if _, err := syscall.Wait4(-1, &status, 0, nil); errors.Is(err, syscall.ECHILD) {
			time.Sleep(10 * time.Millisecond) // no child yet
		}
	}
}

// setUpRoot puts an overlay in memory on top of the machine's file system, so that changes end with the host.
// Directories for container layers and sockets are plain tmpfs, because overlays do not stack.
func setUpRoot(binds string) error {
	s := steps{}
	s.step("make mounts private", syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""))
	const base = "/mnt" // any existing directory
	s.mount("tmpfs", base, "tmpfs", "mode=755")
	for _, d := range []string{"upper", "work", "root"} {
		s.step("create an overlay directory", os.Mkdir(filepath.Join(base, d), 0o755))
	}
	root := base + "/root"
	s.mount("overlay", root, "overlay", "lowerdir=/,upperdir="+base+"/upper,workdir="+base+"/work")
	for _, dir := range []string{"/run", "/var/lib", "/tmp"} {
		s.mount("tmpfs", root+dir, "tmpfs", "mode=755")
	}
	s.bind("/dev", root+"/dev")
	s.mount("sysfs", root+"/sys", "sysfs", "") // shows the host's own network
	s.bind("/sys/fs/cgroup", root+"/sys/fs/cgroup")
	s.mount("proc", root+"/proc", "proc", "")
	for _, b := range strings.Fields(binds) {
		from, to, _ := strings.Cut(b, "=")
		s.step("make "+to, os.MkdirAll(root+to, 0o755))
		s.bind(from, root+to)
	}
	s.step("enter the new root", os.Chdir(root))
	s.step("change the root", syscall.PivotRoot(".", "."))
	s.step("leave the old root", syscall.Unmount(".", syscall.MNT_DETACH))
	s.step("enter the new root", os.Chdir("/"))
	return s.err
}

// steps runs a sequence of operations and stops at the first error.
type steps struct{ err error }

func (s *steps) step(what string, err error) {
	if s.err == nil && err != nil {
		s.err = fmt.Errorf("%s: %w", what, err)
	}
}

func (s *steps) mount(from, to, kind, options string) {
	if s.err == nil {
		s.step("mount "+kind+" on "+to, syscall.Mount(from, to, kind, 0, options))
	}
}

func (s *steps) bind(from, to string) {
	if s.err == nil {
		s.step("bind "+from+" to "+to, syscall.Mount(from, to, "", syscall.MS_BIND|syscall.MS_REC, ""))
	}
}
