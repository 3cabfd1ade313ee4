// Package plugintest builds the program that tests run as every plugin, as a runtime and as a DHCP daemon. It starts
// faster than a test binary, because it contains nothing else.
package plugintest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/plugins"
	"github.com/fairlead/fairlead/plugins/ovs"
	"github.com/fairlead/fairlead/skel"
)

// Variable is the environment variable with the path of a program that was built before, as in virtual machines.
const Variable = "FAIRLEAD_TEST_PROGRAM"

// Package is the program's package.
const Package = "github.com/fairlead/fairlead/internal/plugintest/program"

// The program's names that are not plugins.
const (
	Runtime = "cni"
	Daemon  = "daemon"
)

// Plugins returns the plugins of both of Fairlead's programs.
func Plugins() []skel.Plugin {
	return append(plugins.All(), ovs.Plugin().Skel(plugin.Env{IPAM: plugins.IPAM()}))
}

// Names returns the program's names. It does what argv[0] says.
func Names() []string {
	names := []string{Runtime, Daemon}
	for _, p := range Plugins() {
		names = append(names, p.Name)
	}
	return names
}

// Build builds the program, with the race detector if the caller has it. The caller removes it.
func Build() (path string, remove func(), err error) {
	if path := os.Getenv(Variable); path != "" {
		return path, func() {}, nil
	}
	dir, err := os.MkdirTemp("", "fairlead-program-")
	if err != nil {
		return "", nil, err
	}
	path = filepath.Join(dir, "program")
	if out, err := exec.Command("go", append(append([]string{"build"}, flags()...), "-o", path, Package)...).CombinedOutput(); err != nil {
		return "", nil, errors.Join(fmt.Errorf("build %s: %w\n%s", Package, err, out), os.RemoveAll(dir))
	}
	return path, func() { _ = os.RemoveAll(dir) }, nil
}

// Run runs a package's tests with the program, whose path it sets before. It returns their exit status.
func Run(m interface{ Run() int }, path *string) int {
	program, remove, err := Build()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer remove()
	*path = program
	return m.Run()
}

// The arguments of getpriority in Mark. The call fails, and no other code makes it.
const (
	MarkWhich = 0x46414952
	MarkWho   = 0x4c454144
)

// Mark tells a tracer that the Go runtime has started.
func Mark() { _, _, _ = syscall.RawSyscall(syscall.SYS_GETPRIORITY, MarkWhich, MarkWho, 0) }
