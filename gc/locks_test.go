package gc_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/gc"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/libcni"
)

// TestLockFilesOfKilledProcesses checks that a collection deletes the lock files of killed runtimes, and keeps the lock
// of a running one.
func TestLockFilesOfKilledProcesses(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	unlock, err := attach.Open(root).LockList(t.Context(), kernel.Owner{Network: "n", ContainerID: "running", IfName: "eth0"})
	if err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(root, "attach", "old", "killed,eth0.json.list~")
	held := filepath.Join(root, "attach", "n", "running,eth0.json.list~")
	if err := os.MkdirAll(filepath.Dir(left), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(left, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	o := gc.Options{Runtime: libcni.NewCNIConfigWithCacheDir(nil, t.TempDir(), nil), StateDir: root, ConfDir: t.TempDir(), LibDir: t.TempDir()}
	if r, err := gc.Collect(t.Context(), o); err != nil || len(r.Errors) > 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	if _, err := os.Stat(filepath.Dir(left)); !os.IsNotExist(err) {
		t.Errorf("the lock of a killed process is left: %v", err)
	}
	if _, err := os.Stat(held); err != nil {
		t.Errorf("the lock of a running process: %v", err)
	}
	unlock()
	if entries, _ := os.ReadDir(filepath.Join(root, "attach")); len(entries) > 0 {
		t.Errorf("left: %v", entries)
	}
}
