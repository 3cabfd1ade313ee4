package skel_test

import (
	"os"
	"os/exec"
	"testing"
)

// Runtimes and plugins on other systems use these packages alone.
func TestBuildsForOtherSystems(t *testing.T) {
	t.Parallel()
	for _, goos := range []string{"linux", "windows", "darwin", "freebsd"} {
		cmd := exec.Command("go", "build", "../cni/...", "../libcni/...", "../skel/...")
		cmd.Env = append(os.Environ(), "GOOS="+goos, "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("GOOS=%s: %v\n%s", goos, err, out)
		}
	}
}
