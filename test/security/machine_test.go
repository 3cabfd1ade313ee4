// Package security tests the claims of docs/security.md. It attempts each published vulnerability of CNI plugins,
// and attacks by each party that can write something. The plugins run as processes.
package security

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/plugintest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// testProgram is the path of the plugins and the DHCP daemon.
var testProgram string

func TestMain(m *testing.M) { os.Exit(plugintest.Run(m, &testProgram)) }

// machine is a host with containers.
type machine struct {
	*kerneltest.Machine
	wrap  []string // prefix of every plugin's command line
	fused bool     // attachPoliced runs its list in one process
}

func newMachine(t testing.TB, containers ...string) *machine {
	t.Helper()
	m := &machine{Machine: kerneltest.NewMachine(t, containers...)}
	m.Link(testProgram, plugintest.Names()...)
	return m
}

// text replaces $IPAM and $WORK in a configuration.
func (m *machine) text(conf string) string {
	conf = strings.ReplaceAll(conf, "$IPAM", `"ipam": {"type": "host-local", "dataDir": "$WORK/ipam", "ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd01::/64"}]]}`)
	return strings.ReplaceAll(conf, "$WORK", m.Dir)
}

// command returns the command that runs a plugin for a container. Later variables override earlier ones.
func (m *machine) command(verb, typ, container string, stdin io.Reader, env ...string) *exec.Cmd {
	argv := append(append([]string{}, m.wrap...), filepath.Join(m.Bin(), typ))
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin = stdin
	cmd.Env = append(m.Env("CNI_COMMAND="+verb, "CNI_CONTAINERID="+container, "CNI_IFNAME=eth0", "CNI_NETNS="+m.Netns[container]), env...)
	return cmd
}

// run runs a plugin and returns its output.
func (m *machine) run(verb, typ, container, conf string, env ...string) (string, error) {
	var out bytes.Buffer
	cmd := m.command(verb, typ, container, strings.NewReader(m.text(conf)), env...)
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if e := (*exec.ExitError)(nil); errors.As(err, &e) {
		err = fmt.Errorf("%s %s: %w: %s", typ, verb, err, out.String())
	}
	return out.String(), err
}

func (m *machine) must(verb, typ, container, conf string, env ...string) string {
	m.T.Helper()
	out, err := m.run(verb, typ, container, conf, env...)
	if err != nil {
		m.T.Fatal(err)
	}
	return out
}

// files returns all files of the machine except the programs.
func (m *machine) files() (out []string) {
	_ = filepath.WalkDir(m.Dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && path != m.Dir && !strings.HasPrefix(path, m.Bin()) {
			out = append(out, path)
		}
		return nil
	})
	return out
}

// dump returns the host's state, without what the kernel changes by itself and the shared bridge, which DEL keeps.
func (m *machine) dump() string {
	return kerneltest.Mask(kerneltest.Dump(m.T, ""), kerneltest.Link("cni0"), kerneltest.Timers, kerneltest.Carrier, kerneltest.IPv6State)
}
