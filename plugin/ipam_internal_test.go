package plugin

import (
	"os"
	"path/filepath"
	"testing"
)

func TestResolvesTo(t *testing.T) {
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
		program, name string
		want          bool
	}{
		{program, "host-local", true},
		{program, "static", false},
		{program, "none", false},
		{"", "host-local", false},
		{program + "-gone", "host-local", false},
	} {
		if got := resolvesTo(c.program, c.name, dir); got != c.want {
			t.Errorf("%s resolves to %q: %v, want %v", c.name, c.program, got, c.want)
		}
	}
}
