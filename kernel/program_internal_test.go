package kernel

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestFindBelow finds a program below a directory by absolute links, as those of update-alternatives, and by relative ones.
func TestFindBelow(t *testing.T) {
	root := t.TempDir()
	t.Setenv("PATH", "/usr/local/bin:/usr/sbin")
	for _, dir := range []string{"usr/sbin", "etc/alternatives"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{
		"usr/sbin/iptables": "/etc/alternatives/iptables", "etc/alternatives/iptables": "/usr/sbin/iptables-legacy", "usr/sbin/iptables-legacy": "xtables-legacy-multi",
		"usr/sbin/loop": "loop",
	} {
		if err := os.Symlink(to, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	path, err := findBelow(root, "iptables")
	if end := followLinks(root, path); err != nil || path != "/usr/sbin/iptables" || end != "/usr/sbin/xtables-legacy-multi" {
		t.Errorf("found %s, which leads to %s, %v", path, end, err)
	}
	if _, err := findBelow(root, "nft"); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("a program that does not exist: %v", err)
	}
	_ = followLinks(root, "/usr/sbin/loop") // ends
}
