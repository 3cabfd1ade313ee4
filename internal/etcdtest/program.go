package etcdtest

import (
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/fairlead/fairlead/internal/built"
)

// currentVariable makes tests that do not choose an etcd use the current one.
const currentVariable = "FAIRLEAD_CURRENT_ETCD"

// Version is the version of the current etcd, which ./etcd/go.mod pins. Debian's is older: Kubernetes 1.37 does without
// some of its caches then.
const Version = "3.7.3"

// Current builds the current etcd, which takes about a minute on two processors, and returns its path.
func Current(t testing.TB) string {
	t.Helper()
	_, here, _, _ := runtime.Caller(0)
	path, err := built.Program("etcd-"+Version, "etcd", func(temp string) *exec.Cmd {
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(temp, "etcd"), "go.etcd.io/etcd/server/v3")
		cmd.Dir = filepath.Join(filepath.Dir(here), "etcd")
		cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=mod")
		return cmd
	})
	if err != nil {
		t.Fatal(err)
	}
	return path
}
