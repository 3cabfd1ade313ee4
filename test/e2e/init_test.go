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

// Variables by which the test's own program is told to be process 1 of a host.
const (
	initVariable = "FAIRLEAD_E2E_INIT"  // the host's name
	bindVariable = "FAIRLEAD_E2E_BINDS" // FROM=TO, a line each: what the host sees of the machine's directories
)

func TestMain(m *testing.M) {
	if name := os.Getenv(initVariable); name != "" {
		if err := beInit(name, os.Getenv(bindVariable)); err != nil {
			fmt.Fprintln(os.Stderr, "process 1 of the host:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// beInit makes the host's file system, says so, and reaps until the test is
// over: when it ends, the kernel ends every process of the host.
func beInit(name, binds string) error {
	if err := errors.Join(syscall.Sethostname([]byte(name)), ownRoot(binds)); err != nil {
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

// ownRoot puts the machine's file system under a layer in memory, which takes
// every change and ends with the host. What holds layers of containers, and
// sockets, is memory alone: layers do not stack.
func ownRoot(binds string) error {
	s := steps{}
	s.do("make mounts private", syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""))
	const base = "/mnt" // any directory that is there
	s.mount("tmpfs", base, "tmpfs", "mode=755")
	for _, d := range []string{"upper", "work", "root"} {
		s.do("make the layer", os.Mkdir(filepath.Join(base, d), 0o755))
	}
	root := base + "/root"
	s.mount("overlay", root, "overlay", "lowerdir=/,upperdir="+base+"/upper,workdir="+base+"/work")
	for _, dir := range []string{"/run", "/var/lib", "/tmp"} {
		s.mount("tmpfs", root+dir, "tmpfs", "mode=755")
	}
	s.bind("/dev", root+"/dev")
	s.mount("sysfs", root+"/sys", "sysfs", "") // of the host's own network
	s.bind("/sys/fs/cgroup", root+"/sys/fs/cgroup")
	s.mount("proc", root+"/proc", "proc", "")
	for _, b := range strings.Fields(binds) {
		from, to, _ := strings.Cut(b, "=")
		s.do("make "+to, os.MkdirAll(root+to, 0o755))
		s.bind(from, root+to)
	}
	s.do("enter the new root", os.Chdir(root))
	s.do("change the root", syscall.PivotRoot(".", "."))
	s.do("leave the old root", syscall.Unmount(".", syscall.MNT_DETACH))
	s.do("enter the new root", os.Chdir("/"))
	return s.err
}

// steps are done one after the other until one fails.
type steps struct{ err error }

func (s *steps) do(what string, err error) {
	if s.err == nil && err != nil {
		s.err = fmt.Errorf("%s: %w", what, err)
	}
}

func (s *steps) mount(from, to, kind, options string) {
	if s.err == nil {
		s.do("mount "+kind+" on "+to, syscall.Mount(from, to, kind, 0, options))
	}
}

func (s *steps) bind(from, to string) {
	if s.err == nil {
		s.do("bind "+from+" to "+to, syscall.Mount(from, to, "", syscall.MS_BIND|syscall.MS_REC, ""))
	}
}
