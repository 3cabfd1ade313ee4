package release

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/ociimage"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// releaseVariable is the environment variable with the output directory of "make release". Without it the tests
// do not run.
const releaseVariable = "FAIRLEAD_RELEASE"

const imageName = "docker.io/test/idle:1"

// TestDeb installs the .deb, runs the quick start and the containerd tutorial as written, and removes the package. The
// root must then be the same as before.
func TestDeb(t *testing.T) {
	dir := kerneltest.OptIn(t, releaseVariable)
	deb := only(t, dir, "fairlead_*_"+runtime.GOARCH+".deb")
	r := newRoot(t)
	r.put(t, "/files/fairlead_0.1.0_amd64.deb", read(t, deb)) // the file name in the documentation
	r.put(t, "/files/idle.tar", idleImage(t))
	before := r.files(t)
	out := r.sh(t, "cd /files\n"+startContainerd+commands(t, "README.md", "")+commands(t, "docs/tutorials/containerd.md", "containerd"))
	for _, want := range []string{"10.20.0.", "my-net", "Nothing is wrong"} {
		if !strings.Contains(out, want) {
			t.Errorf("the output has no %q:\n%s", want, out)
		}
	}
	if d := kerneltest.DiffLines(before, r.files(t)); len(d) > 0 {
		t.Errorf("the root has changed:\n%s\nthe commands printed\n%s", strings.Join(d, "\n"), out)
	}
}

// TestTarball does the same with the .tar.gz, and removes its files as docs/install.md describes.
func TestTarball(t *testing.T) {
	dir := kerneltest.OptIn(t, releaseVariable)
	archive := only(t, dir, "fairlead-*-linux-"+runtime.GOARCH+".tar.gz")
	r := newRoot(t)
	r.put(t, "/files/fairlead-0.1.0-linux-amd64.tar.gz", read(t, archive))
	r.put(t, "/files/idle.tar", idleImage(t))
	before := r.files(t)
	script := "cd /files\n" + startContainerd + line(t, `sudo tar --extract.*`) +
		withoutApt(commands(t, "README.md", "")+commands(t, "docs/tutorials/containerd.md", "containerd")) + line(t, `tar --list.*`)
	out := r.sh(t, script)
	if !strings.Contains(out, "10.20.0.") {
		t.Errorf("the output has no address:\n%s", out)
	}
	if d := kerneltest.DiffLines(before, r.files(t)); len(d) > 0 {
		t.Errorf("the root has changed:\n%s\nthe commands printed\n%s", strings.Join(d, "\n"), out)
	}
}

// TestContents checks that the .deb, the .rpm and the .tar.gz have every systemd unit, and what docs/docker.md builds a
// plugin of Docker from.
func TestContents(t *testing.T) {
	dir := kerneltest.OptIn(t, releaseVariable)
	units, err := filepath.Glob("../../contrib/systemd/fairlead-*")
	must(t, err)
	if len(units) < 8 {
		t.Fatalf("units: %v", units)
	}
	want := []string{"lib/fairlead/fairlead", "lib/fairlead/fairlead-cni", "lib/fairlead/cni/bridge", "share/doc/fairlead/docker/config.json", "share/doc/fairlead/docker/compose.yaml"}
	for _, u := range units {
		want = append(want, "lib/systemd/system/"+filepath.Base(u))
	}
	for _, list := range [][]string{
		{"dpkg-deb", "--contents", only(t, dir, "fairlead_*_"+runtime.GOARCH+".deb")},
		{"rpm", "--query", "--list", "--package", only(t, dir, "fairlead-*.rpm")},
		{"tar", "--list", "--file", only(t, dir, "fairlead-*-linux-"+runtime.GOARCH+".tar.gz")},
	} {
		out, err := exec.Command(list[0], list[1:]...).Output()
		must(t, err)
		have := string(out) + "\n"
		for _, file := range want {
			if !strings.Contains(have, "/"+file+"\n") && !strings.Contains(have, "/"+file+" -> ") {
				t.Errorf("%s lacks %s", filepath.Base(list[len(list)-1]), file)
			}
		}
	}
}

// TestVersionsAgree compares the version in the names of the files, in the packages, and in what the programs print.
func TestVersionsAgree(t *testing.T) {
	dir := kerneltest.OptIn(t, releaseVariable)
	deb := only(t, dir, "fairlead_*_"+runtime.GOARCH+".deb")
	out, err := exec.Command("dpkg-deb", "--field", deb, "Version").Output()
	must(t, err)
	version := strings.TrimSpace(string(out))
	unpacked := t.TempDir()
	if out, err := exec.Command("dpkg-deb", "--extract", deb, unpacked).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	printed, err := exec.Command(filepath.Join(unpacked, "usr/bin/fairlead"), "--version").Output()
	must(t, err)
	semantic := strings.Replace(version, "~", "-", 1)
	if !strings.HasPrefix(string(printed), "fairlead "+semantic+" ") {
		t.Errorf("the package has version %s, and fairlead --version prints %q", version, printed)
	}
	// The image of the release is the one that its manifests and its command name.
	image := string(read(t, filepath.Join(dir, "fairlead-"+semantic+"-image.tar")))
	manifest, err := exec.Command(filepath.Join(unpacked, "usr/bin/fairlead"), "kubernetes", "manifest").Output()
	must(t, err)
	texts := map[string]string{"fairlead kubernetes manifest": string(manifest)}
	for _, name := range []string{"fairlead.yaml", "plugins.yaml", "etcd.yaml"} {
		texts[name] = string(read(t, filepath.Join(unpacked, "usr/share/doc/fairlead/kubernetes", name)))
	}
	for name, text := range texts {
		used := regexp.MustCompile(`(?m)^ *image: (.*)$`).FindAllStringSubmatch(text, -1)
		if len(used) == 0 {
			t.Errorf("%s names no image", name)
		}
		for _, m := range used {
			if !strings.Contains(image, `"org.opencontainers.image.ref.name":"`+m[1]+`"`) {
				t.Errorf("%s: the image %s is not in the release's image file", name, m[1])
			}
		}
	}
	for _, name := range []string{"fairlead-" + semantic + "-image.tar", "fairlead-" + semantic + ".cdx.json", "SHA256SUMS"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	check := exec.Command("sha256sum", "--check", "--quiet", "SHA256SUMS")
	check.Dir = dir
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("sha256sum: %v: %s", err, out)
	}
}

// startContainerd starts the daemon and imports an image whose program keeps running. The tutorial expects both.
const startContainerd = `containerd >/run/containerd.log 2>&1 &
for i in $(seq 100); do ctr version >/dev/null 2>&1 && break; sleep 0.1; done
ctr images import /files/idle.tar
`

// commands returns the shell commands of a page as one script: its blocks in the language sh and, if client is not
// empty, "sh CLIENT". It skips commands that build the project, because a root has no Go.
func commands(t *testing.T, page, client string) (script string) {
	t.Helper()
	text := string(read(t, filepath.Join("../..", page)))
	count := 0
	for _, m := range regexp.MustCompile("(?ms)^```sh( [a-z]+)?\n(.*?)^```").FindAllStringSubmatch(text, -1) {
		if strings.HasPrefix(m[2], "make ") || m[1] != "" && m[1] != " "+client {
			continue
		}
		count++
		script += strings.ReplaceAll(m[2], "IMAGE", imageName)
	}
	if count < 2 {
		t.Fatalf("%s has %d blocks of commands", page, count)
	}
	return script
}

// line returns the only line of docs/install.md that matches a pattern.
func line(t *testing.T, pattern string) string {
	t.Helper()
	found := regexp.MustCompile("(?m)^"+pattern+"$").FindAllString(string(read(t, "../../docs/install.md")), -1)
	if len(found) != 1 {
		t.Fatalf("docs/install.md has %d lines that match %s", len(found), pattern)
	}
	return found[0] + "\n"
}

// withoutApt removes apt commands from a script.
func withoutApt(script string) string {
	return regexp.MustCompile(`(?m)^sudo apt .*\n`).ReplaceAllString(script, "")
}

// idleImage returns an image whose program sleeps until a signal ends it.
func idleImage(t *testing.T) []byte {
	t.Helper()
	dir := t.TempDir()
	source := filepath.Join(dir, "main.go")
	must(t, os.WriteFile(source, []byte("package main\n\nimport \"time\"\n\nfunc main() { time.Sleep(time.Hour) }\n"), 0o644))
	cmd := exec.Command("go", "build", "-o", filepath.Join(dir, "idle"), source)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	archive, err := ociimage.Archive(imageName, []ociimage.Platform{{
		Arch: runtime.GOARCH, Programs: []ociimage.Program{{Name: "idle", Data: read(t, filepath.Join(dir, "idle"))}},
	}})
	must(t, err)
	return archive
}

// only returns the only file that matches a pattern.
func only(t *testing.T, dir, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s in %s: %v %q", pattern, dir, err, found)
	}
	return found[0]
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(fmt.Errorf("read: %w", err))
	}
	return data
}
