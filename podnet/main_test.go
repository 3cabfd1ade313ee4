package podnet_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/plugins"
	"github.com/fairlead/fairlead/skel"
)

// hostVariable tells the test binary that it runs in the tests' host namespace. The whole process must be in it,
// because a Manager's goroutines are.
const hostVariable = "FAIRLEAD_PODNET_HOST"

// TestMain runs the test binary as a plugin if it is called by a plugin's name. Otherwise it runs the tests in a new
// namespace with separate state.
func TestMain(m *testing.M) {
	name := filepath.Base(os.Args[0])
	for _, p := range plugins.All() {
		if p.Name == name {
			skel.PluginMain(p)
			return
		}
	}
	if name == "setup-and-hang" {
		setUpAndHang()
	}
	if os.Getenv(hostVariable) != "" {
		os.Exit(m.Run())
	}
	os.Exit(asHost())
}

func asHost() int {
	dir, err := os.MkdirTemp("", "podnet-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), hostVariable+"="+dir, attach.RootVariable+"="+filepath.Join(dir, "run"), "FAIRLEAD_LIB="+filepath.Join(dir, "lib"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	err = cmd.Run()
	if exit, ok := err.(*exec.ExitError); ok {
		return exit.ExitCode()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "the tests need root, for a network namespace:", err)
		return 1
	}
	return 0
}
