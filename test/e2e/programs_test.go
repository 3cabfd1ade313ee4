package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/kubetest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// programs are the paths of the programs that the tests build, once for all clients.
type programs struct {
	dir      string
	plugin   string // directory of our plugins, with the layout of /opt/cni/bin
	probe    string
	cri      string
	fairlead string // bin/fairlead
	image    string // an OCI archive
}

func (p *programs) setPrograms(other programs) { *p = other }

// programsVariable names a directory for the programs, which are built if they are not there. Without it, each test has
// a directory of its own. In a virtual machine, which is slow and has no network, all programs must be built before.
const programsVariable = "FAIRLEAD_TEST_PROGRAMS"

// TestBuildPrograms builds all programs that a cluster with Kubernetes' own tests needs.
func TestBuildPrograms(t *testing.T) {
	kerneltest.OptIn(t, programsVariable)
	p := build(t)
	copyRelease(t, p)
	kubernetesPrograms(t, kubetest.Version)
	containerd23(t, p)
	referencePlugins(t)
	kubernetesSuite(t)
	policyAPISuite(t, suiteSlowSCTP)
	policyDefinition(t, p)
	suiteImageList(t)
	corednsImage(t)
	multusProgram(t)
}

func build(t *testing.T) programs {
	t.Helper()
	dir := os.Getenv(programsVariable)
	if dir == "" {
		dir = t.TempDir()
	}
	p := programs{dir: dir, plugin: filepath.Join(dir, "cni"), probe: filepath.Join(dir, "probe"), cri: filepath.Join(dir, "cri"),
		fairlead: filepath.Join(dir, "fairlead"), image: filepath.Join(dir, "image.tar")}
	if _, err := os.Stat(p.image); err == nil { // the last one
		return p
	}
	err := errors.Join(
		compile("../..", filepath.Join(dir, "cni", "fairlead-cni"), "./cmd/fairlead-cni"),
		compile("../..", p.fairlead, "./cmd/fairlead"),
		compile(".", p.probe, "./probe"),
		compile("cri", p.cri, "."),
		linkPlugins(p.plugin),
		os.Mkdir(filepath.Join(dir, "bin"), 0o755), // the layout of make build
		os.Link(filepath.Join(dir, "cni", "fairlead-cni"), filepath.Join(dir, "bin", "fairlead-cni")),
		os.Link(p.fairlead, filepath.Join(dir, "bin", "fairlead")),
		copyFile(p.probe, filepath.Join(p.plugin, "e2e-record")),
	)
	if err == nil {
		var i image
		if i, err = probeImage(p.probe); err == nil {
			err = i.write(p.image)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func compile(dir, out, pkg string, flags ...string) error {
	cmd := exec.Command("go", "build", "-ldflags="+strings.Join(append(flags, "-s -w"), " "), "-o", out, pkg)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, text)
	}
	return nil
}

// linkPlugins creates a link for every plugin, as make build does.
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
