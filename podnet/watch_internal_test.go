package podnet

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestMatters checks which files next to the configuration make it be read again.
func TestMatters(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	dir, elsewhere := filepath.Join(root, "etc", "net.d"), filepath.Join(root, "data")
	for _, d := range []string{dir, elsewhere} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	const conf = `{"cniVersion": "1.0.0", "name": "a", "plugins": [{"type": "bridge"}]}`
	if err := os.WriteFile(filepath.Join(elsewhere, "a"), []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(elsewhere, "a"), filepath.Join(dir, "a.conflist")); err != nil {
		t.Fatal(err)
	}
	m, err := New(Options{ConfDirs: []string{dir}, PluginDirs: []string{root}, StateDir: filepath.Join(root, "pods"), CacheDir: filepath.Join(root, "cache")})
	if err != nil {
		t.Fatal(err)
	}
	m.conf.load()
	w := &watch{m: m}
	for name, want := range map[string]bool{
		filepath.Join(dir, "b.conflist"): true, dir: true, filepath.Dir(dir): true, root: true,
		filepath.Join(elsewhere, "a"): true, filepath.Join(elsewhere, "b"): true, // next to the target of a link
		filepath.Join(root, "etc", "passwd"): false, filepath.Join(root, "x"): false, filepath.Join(filepath.Dir(dir), "net"): false,
	} {
		if w.matters(name) != want {
			t.Errorf("%s matters: %v", name, !want)
		}
	}
	if err := os.Remove(filepath.Join(elsewhere, "a")); err != nil {
		t.Fatal(err)
	}
	if !w.matters(filepath.Join(root, "x")) {
		t.Error("a link's target is gone: anything may bring it back")
	}
}

// TestArmLinkedDirectory checks that the watches of a directory behind a link, which has two names, are complete. If
// they were not, each read would create all of them again, and a change in between would have no event.
func TestArmLinkedDirectory(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	real, link := filepath.Join(root, "real"), filepath.Join(root, "net.d")
	if err := errors.Join(os.Mkdir(real, 0o755), os.Symlink(real, link),
		os.WriteFile(filepath.Join(real, "a.conflist"), []byte(`{"cniVersion": "1.0.0", "name": "a", "plugins": [{"type": "x"}]}`), 0o644)); err != nil {
		t.Fatal(err)
	}
	m, err := New(Options{ConfDirs: []string{link}, StateDir: filepath.Join(root, "pods")})
	if err != nil {
		t.Fatal(err)
	}
	w := &watch{m: m}
	defer w.close()
	if !w.arm() || w.arm() || w.err != nil {
		t.Errorf("the watches %v were created twice, %v", w.added, w.err)
	}
}
