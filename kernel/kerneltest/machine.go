package kerneltest

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Machine is a test's host with containers and a directory for all files.
type Machine struct {
	T     testing.TB
	Dir   string            // all files; short enough for the path of a socket
	Netns map[string]string // path of each container's namespace
}

// NewMachine moves the test to a new host (see Host) with containers.
func NewMachine(t testing.TB, containers ...string) *Machine {
	t.Helper()
	Host(t)
	dir, err := os.MkdirTemp("", "machine-") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	m := &Machine{T: t, Dir: dir, Netns: map[string]string{}}
	for _, c := range containers {
		m.Netns[c] = Netns(t)
	}
	return m
}

// Bin returns the directory of the machine's programs.
func (m *Machine) Bin() string { return filepath.Join(m.Dir, "bin") }

// Install makes this test binary a program of the machine under each name. Its TestMain tells them apart by argv[0].
func (m *Machine) Install(names ...string) {
	m.T.Helper()
	self, err := os.Executable()
	if err != nil {
		m.T.Fatal(err)
	}
	m.Link(self, names...)
}

// Link makes a program one of the machine's under each name.
func (m *Machine) Link(program string, names ...string) {
	m.T.Helper()
	err := os.MkdirAll(m.Bin(), 0o755)
	for _, name := range names {
		if err == nil {
			err = os.Symlink(program, filepath.Join(m.Bin(), name))
		}
	}
	if err != nil {
		m.T.Fatal(err)
	}
}

// Env returns the environment of a program that keeps its files in the machine's directory. Later variables override
// earlier ones.
func (m *Machine) Env(more ...string) []string {
	return append(append(os.Environ(), "CNI_PATH="+m.Bin(), "FAIRLEAD_RUN="+m.Dir+"/run", "FAIRLEAD_LIB="+m.Dir+"/lib", "WORK="+m.Dir), more...)
}

// Files returns the names and contents of the machine's files, a line each. It omits programs, and what an ADD may leave:
// locks, the allocation cursor (last_reserved_ip) and the index of addresses. The list of recently released addresses
// (.cooling) grows with every DEL, so only its name counts.
func (m *Machine) Files(dirs ...string) string {
	var b strings.Builder
	for _, dir := range dirs {
		_ = filepath.WalkDir(filepath.Join(m.Dir, dir), func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() || strings.Contains(path, "/.fairlead/") || e.Name() == "lock" || strings.HasPrefix(e.Name(), "last_reserved") {
				return nil // also when the directory does not exist, or a file was deleted meanwhile
			}
			content := []byte("...")
			if filepath.Ext(path) != ".cooling" {
				if content, err = os.ReadFile(path); err != nil {
					content = []byte(err.Error())
				}
			}
			fmt.Fprintf(&b, "%s: %q\n", strings.TrimPrefix(path, m.Dir), content)
			return nil
		})
	}
	return b.String()
}

// Inside calls f on a thread in a namespace ("" is the test's host). Sockets that it opens and commands that it starts stay
// there.
func Inside(netns string, f func() error) error {
	if netns == "" {
		return f()
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		fd, err := unix.Open(netns, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			err = unix.Setns(fd, unix.CLONE_NEWNET)
			unix.Close(fd)
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}
