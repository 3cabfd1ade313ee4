package plugin

import (
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
