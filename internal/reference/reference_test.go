package reference

import (
	"os/exec"
	"strings"
	"testing"
)

func TestPlugin(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(Plugin(t, "host-local"))
	cmd.Env = []string{"CNI_COMMAND=VERSION"}
	cmd.Stdin = strings.NewReader(`{"cniVersion": "1.1.0"}`)
	out, err := cmd.Output()
	if err != nil || !strings.Contains(string(out), `"1.1.0"`) {
		t.Fatalf("VERSION of the reference's host-local: %v: %s", err, out)
	}
}

func TestInstallUnknown(t *testing.T) {
	t.Parallel()
	if _, err := InstallPlugin("none"); err == nil || !strings.Contains(err.Error(), `"none"`) {
		t.Errorf("installing a plugin that is not there: %v", err)
	}
}
