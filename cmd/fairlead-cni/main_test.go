package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/plugins"
)

// TestMain runs the test binary as the program if AS_PROGRAM is set.
func TestMain(m *testing.M) {
	if os.Getenv("AS_PROGRAM") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func program(t *testing.T, env string, args ...string) (string, int) {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = []string{"AS_PROGRAM=1", env}
	out, err := cmd.CombinedOutput()
	if _, ok := err.(*exec.ExitError); err != nil && !ok {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// TestList verifies the names that "make build" creates links for.
func TestList(t *testing.T) {
	t.Parallel()
	out, code := program(t, "", "--list")
	names := strings.Fields(out)
	if code != 0 || len(names) != len(plugins.All()) || strings.Count(out, "\n") != len(names) {
		t.Fatalf("exit code %d, %q", code, out)
	}
	for _, n := range names {
		out, code := program(t, "CNI_COMMAND=VERSION", n)
		if code != 0 || !strings.Contains(out, `"supportedVersions"`) {
			t.Errorf("%s: exit code %d, %s", n, code, out)
		}
	}
}

func TestUnknownPlugin(t *testing.T) {
	t.Parallel()
	out, code := program(t, "", "nowhere")
	if code != 2 || !strings.HasPrefix(out, "fairlead-cni: there is no plugin \"nowhere\"\n") || !strings.Contains(out, "  bridge ") {
		t.Errorf("exit code %d, %s", code, out)
	}
}

// TestHelpColumns verifies that the descriptions of all plugins begin in one column.
func TestHelpColumns(t *testing.T) {
	t.Parallel()
	out, _ := program(t, "", "--help")
	_, list, _ := strings.Cut(out, "Plugins:\n")
	for _, line := range strings.Split(strings.TrimSuffix(list, "\n"), "\n") {
		if len(line) < 19 || line[17] != ' ' || line[18] == ' ' {
			t.Errorf("%q does not begin its description in column 19", line)
		}
	}
}

func TestHelpAndVersion(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{"--help", "-h"} {
		out, code := program(t, "", flag)
		if code != 0 || !strings.HasPrefix(out, "fairlead-cni is all CNI plugins") || !strings.Contains(out, "\n  bridge ") {
			t.Errorf("%s: exit code %d, %s", flag, code, out)
		}
	}
	if out, code := program(t, "", "--version"); code != 0 || out != "fairlead-cni v"+cni.Release()+"\n" {
		t.Errorf("--version: exit code %d, %s", code, out)
	}
	if out, code := program(t, ""); code != 2 || !strings.HasPrefix(out, "fairlead-cni: the name of a plugin is missing\n") {
		t.Errorf("no argument: exit code %d, %s", code, out)
	}
}

// TestRuntimeHasEnded runs an ADD whose output nobody reads: both pipes are closed. The plugin takes the ADD back.
func TestRuntimeHasEnded(t *testing.T) {
	t.Parallel()
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], "host-local")
	cmd.Env = []string{"AS_PROGRAM=1", "CNI_COMMAND=ADD", "CNI_CONTAINERID=c", "CNI_IFNAME=eth0", "CNI_NETNS=/none", "CNI_PATH=/none"}
	cmd.Stdin = strings.NewReader(`{"cniVersion":"1.0.0","name":"n","type":"host-local","ipam":{"type":"host-local","subnet":"10.1.0.0/24","dataDir":"` + dir + `"}}`)
	cmd.Stdout, cmd.Stderr = out, out
	if err := errors.Join(in.Close(), cmd.Start(), out.Close()); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("want exit code 1, got %v", err)
	}
	used, err := filepath.Glob(filepath.Join(dir, "n", "10.*"))
	if _, last := os.Stat(filepath.Join(dir, "n", "last_reserved_ip.0")); len(used) > 0 || errors.Join(err, last) != nil {
		t.Errorf("addresses are left, or none was allocated: %v, %v, %v", used, err, last)
	}
}
