package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// programs are what the tests build, once for all clients.
type programs struct {
	dir    string
	plugin string // our plugins, as they would lie in /opt/cni/bin
	probe  string
	cri    string
	fuse   string // bin/fairlead
	image  string // an OCI archive
}

func (p *programs) use(other programs) { *p = other }

func build(t *testing.T) programs {
	t.Helper()
	dir := t.TempDir()
	p := programs{dir: dir, plugin: filepath.Join(dir, "cni"), probe: filepath.Join(dir, "probe"), cri: filepath.Join(dir, "cri"),
		fuse: filepath.Join(dir, "fairlead"), image: filepath.Join(dir, "image.tar")}
	err := errors.Join(
		compile("../..", filepath.Join(dir, "cni", "fairlead-cni"), "./cmd/fairlead-cni"),
		compile("../..", p.fuse, "./cmd/fairlead"),
		compile(".", p.probe, "./probe"),
		compile("cri", p.cri, "."),
		linkPlugins(p.plugin),
		os.Mkdir(filepath.Join(dir, "bin"), 0o755), // as make build leaves it
		os.Link(filepath.Join(dir, "cni", "fairlead-cni"), filepath.Join(dir, "bin", "fairlead-cni")),
		os.Link(p.fuse, filepath.Join(dir, "bin", "fairlead")),
		copyFile(p.probe, filepath.Join(p.plugin, "e2e-record")),
		writeImage(p.image, p.probe),
	)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func compile(in, out, pkg string) error {
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", out, pkg)
	cmd.Dir = in
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, text)
	}
	return nil
}

// linkPlugins does as make build does: a link for every plugin.
func linkPlugins(dir string) error {
	out, err := exec.Command(filepath.Join(dir, "fairlead-cni"), "--list").Output()
	for _, name := range strings.Fields(string(out)) {
		err = errors.Join(err, os.Symlink("fairlead-cni", filepath.Join(dir, name)))
	}
	return err
}

func copyFile(from, to string) error {
	raw, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, raw, 0o755)
}
