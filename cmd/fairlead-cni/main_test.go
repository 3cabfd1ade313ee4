package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/plugins"
)

// TestMain makes the test binary the program, if it is asked to be.
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

// TestList: make build links what --list prints.
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

func TestUnknown(t *testing.T) {
	t.Parallel()
	out, code := program(t, "", "nowhere")
	if code != 2 || !strings.HasPrefix(out, "nowhere is no plugin of Fairlead.") || !strings.Contains(out, "  bridge ") {
		t.Errorf("exit code %d, %s", code, out)
	}
}
