package plugin

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestHasIPAMPlugin(t *testing.T) {
	t.Parallel()
	dir, program := t.TempDir(), filepath.Join(t.TempDir(), "fairlead-cni")
	for _, file := range []string{program, filepath.Join(dir, "static")} {
		if err := os.WriteFile(file, nil, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(program, filepath.Join(dir, "host-local")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		ours, name string
		want       bool
	}{
		{program, "host-local", true},
		{program, "static", false},
		{program, "none", false},
		{"", "host-local", false},
		{program + "-gone", "host-local", false},
	} {
		env := Env{SameBuild: func(_ string, info fs.FileInfo) bool {
			ours, err := os.Stat(c.ours)
			return err == nil && os.SameFile(ours, info)
		}}
		if got := env.Has(c.name, dir); got != c.want || (Env{}).Has(c.name, dir) {
			t.Errorf("%s, where %q is ours: %v, want %v", c.name, c.ours, got, c.want)
		}
	}
}

// TestHasCopy verifies that a copy of this program counts as this program, and that another program does not, even if it
// has the same size.
func TestHasCopy(t *testing.T) {
	t.Parallel()
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, program := range map[string][]byte{"copy": self, "longer": append(bytes.Clone(self), 0), "other": make([]byte, len(self)), "empty": nil} {
		if err := os.WriteFile(filepath.Join(dir, name), program, 0o700); err != nil {
			t.Fatal(err)
		}
		if got := (Env{}).Has(name, dir); got != (name == "copy") {
			t.Errorf("%s counts as this program: %v", name, got)
		}
	}
}
