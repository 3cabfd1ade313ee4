package install

import (
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain also runs as a process that installs or uninstalls, for the tests to kill.
func TestMain(m *testing.M) {
	if dir := os.Getenv("INSTALL_DIR"); dir != "" {
		p, err := Open(dir)
		if err == nil && os.Getenv("INSTALL_BACK") != "" {
			_, err = p.Uninstall(nil, false)
		} else if err == nil {
			_, err = p.Install(files(dir, os.Getenv("INSTALL_VERSION")), false)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// files returns a program with links to it, and a configuration in another directory.
func files(dir, version string) []File {
	return []File{
		{Path: filepath.Join(dir, "all"), Data: []byte("program " + version), Mode: 0o755},
		{Path: filepath.Join(dir, "bridge"), Link: "all"},
		{Path: filepath.Join(dir, "ptp"), Link: "all"},
		{Path: filepath.Join(dir, "../net.d/10-n.conflist"), Data: []byte("{}"), Mode: 0o644},
	}
}

// before creates a directory with plugins of other software: a program, a link, and one that is not replaced.
func before(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "bin")
	must(t, os.Mkdir(dir, 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "bridge"), []byte("their bridge"), 0o750))
	must(t, os.WriteFile(filepath.Join(dir, "other"), []byte("another's"), 0o755))
	must(t, os.Symlink("bridge", filepath.Join(dir, "ptp")))
	return dir
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// tree returns the files in and next to a directory, with their modes.
func tree(t *testing.T, dir string) string {
	t.Helper()
	out := map[string]string{}
	must(t, filepath.WalkDir(filepath.Dir(dir), func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		if target, err := os.Readlink(path); err == nil {
			out[name] = "-> " + target
			return nil
		}
		raw, err := os.ReadFile(path)
		fi, _ := e.Info()
		out[name] = fmt.Sprintf("%v %s", fi.Mode(), raw)
		return err
	}))
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(out)) {
		b.WriteString(name + ": " + out[name] + "\n")
	}
	return b.String()
}

func open(t *testing.T, dir string) *Place {
	t.Helper()
	p, err := Open(dir)
	must(t, err)
	return p
}

func actions(list []Done) (out []string) {
	for _, d := range list {
		out = append(out, d.Action)
	}
	return out
}

func TestInstallAndUninstall(t *testing.T) {
	t.Parallel()
	dir := before(t)
	was := tree(t, dir)
	step := func(version string, dry bool, want ...string) {
		t.Helper()
		done, err := open(t, dir).Install(files(dir, version), dry)
		if err != nil || !slices.Equal(actions(done), want) {
			t.Fatalf("%v, %v, want %v", actions(done), err, want)
		}
	}
	step("1", true, Created, Replaced, Replaced, Created)
	if now := tree(t, dir); now != was {
		t.Errorf("a dry run changed\n%s\nto\n%s", was, now)
	}
	step("1", false, Created, Replaced, Replaced, Created)
	now := tree(t, dir)
	for _, want := range []string{"all: -rwxr-xr-x program 1\n", "bridge: -> all\n", "ptp: -> all\n", "../net.d/10-n.conflist: -rw-r--r-- {}\n", "other: -rwxr-xr-x another's\n"} {
		if !strings.Contains(now, want) {
			t.Errorf("no %q in\n%s", want, now)
		}
	}
	step("1", false, Same, Same, Same, Same)
	step("2", false, Updated, Same, Same, Same)
	done, err := open(t, dir).Uninstall(nil, true)
	if err != nil || !slices.Equal(actions(done), []string{Removed, Restored, Restored, Removed}) {
		t.Errorf("dry: %v, %v", actions(done), err)
	}
	if _, err := open(t, dir).Uninstall(nil, false); err != nil {
		t.Fatal(err)
	}
	if now := tree(t, dir); now != was {
		t.Errorf("after uninstall\n%s\nwant\n%s", now, was)
	}
}

// TestUninstallWithoutReplacedFile checks that a replaced file that is lost is reported, and that our file stays until
// the file is reinstalled.
func TestUninstallWithoutReplacedFile(t *testing.T) {
	t.Parallel()
	dir := before(t)
	_, err := open(t, dir).Install(files(dir, "1"), false)
	must(t, err)
	must(t, os.Remove(filepath.Join(dir, stateDir, "kept/bridge")))
	if _, err := open(t, dir).Uninstall(nil, false); err == nil || !strings.Contains(err.Error(), "reinstall the package") {
		t.Errorf("%v, want an error about the lost file", err)
	}
	if to, err := os.Readlink(filepath.Join(dir, "bridge")); to != "all" {
		t.Errorf("our link is gone: %q, %v", to, err)
	}
	must(t, os.Remove(filepath.Join(dir, "bridge")))
	must(t, os.WriteFile(filepath.Join(dir, "bridge"), []byte("their bridge"), 0o750))
	if done, err := open(t, dir).Uninstall(nil, false); err != nil || !slices.Equal(actions(done), []string{Left, Removed}) {
		t.Errorf("after the reinstallation: %v, %v", actions(done), err)
	}
}

// TestUninstallInUse keeps a program and a link that are in use, and removes them later.
func TestUninstallInUse(t *testing.T) {
	t.Parallel()
	dir := before(t)
	was := tree(t, dir)
	_, err := open(t, dir).Install(files(dir, "1"), false)
	must(t, err)
	done, err := open(t, dir).Uninstall([]string{"all", "ptp"}, false)
	if err != nil || !slices.Equal(actions(done), []string{Removed, InUse, Restored, InUse}) {
		t.Errorf("%v, %v", actions(done), err)
	}
	now := tree(t, dir)
	for _, want := range []string{"all: -rwxr-xr-x program 1\n", "ptp: -> all\n", "bridge: -rwxr-x--- their bridge\n"} {
		if !strings.Contains(now, want) {
			t.Errorf("no %q in\n%s", want, now)
		}
	}
	_, err = open(t, dir).Uninstall(nil, false)
	must(t, err)
	if now := tree(t, dir); now != was {
		t.Errorf("after uninstall\n%s\nwant\n%s", now, was)
	}
}

// TestReplacedByOthers replaces our files by others: Uninstall keeps them, and Install replaces them again.
func TestReplacedByOthers(t *testing.T) {
	t.Parallel()
	dir := before(t)
	install := func() []string {
		t.Helper()
		done, err := open(t, dir).Install(files(dir, "1"), false)
		must(t, err)
		return actions(done)
	}
	install()
	must(t, os.Remove(filepath.Join(dir, "bridge")))
	must(t, os.WriteFile(filepath.Join(dir, "bridge"), []byte("their new bridge"), 0o755))
	must(t, os.Remove(filepath.Join(dir, "all")))
	if got := install(); !slices.Equal(got, []string{Created, Replaced, Same, Same}) {
		t.Errorf("%v", got)
	}
	must(t, os.Remove(filepath.Join(dir, "ptp")))
	must(t, os.WriteFile(filepath.Join(dir, "ptp"), []byte("their new ptp"), 0o755))
	done, err := open(t, dir).Uninstall(nil, false)
	if err != nil || !slices.Equal(actions(done), []string{Removed, Left, Restored, Removed}) {
		t.Fatalf("%v, %v", actions(done), err)
	}
	now := tree(t, dir)
	for _, want := range []string{"bridge: -rwxr-xr-x their new bridge\n", "ptp: -rwxr-xr-x their new ptp\n"} {
		if !strings.Contains(now, want) {
			t.Errorf("no %q in\n%s", want, now)
		}
	}
	if kept := done[1].Kept; kept == "" || !strings.Contains(now, ".fairlead/kept/ptp: -> bridge") {
		t.Errorf("what was replaced first is lost: %q in\n%s", kept, now)
	}
}

func TestInstallRejectsObstacles(t *testing.T) {
	t.Parallel()
	dir := before(t)
	must(t, os.Mkdir(filepath.Join(dir, "all"), 0o755))
	if _, err := open(t, dir).Install(files(dir, "1"), false); err == nil || !strings.Contains(err.Error(), "move it away first") {
		t.Errorf("%v", err)
	}
	must(t, os.MkdirAll(filepath.Join(dir, stateDir), 0o755))
	for _, damaged := range []string{"", "[{", "null", "[null]", "{}"} {
		must(t, os.WriteFile(filepath.Join(dir, stateDir, "manifest.json"), []byte(damaged), 0o644))
		if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "manifest.json, is damaged") || !strings.Contains(err.Error(), ".fairlead/kept. Move") {
			t.Errorf("the manifest %q: %v; uninstall would lose what was kept", damaged, err)
		}
	}
}

// TestBusy replaces a program that is running.
func TestBusy(t *testing.T) {
	t.Parallel()
	dir := before(t)
	sleep, err := exec.LookPath("sleep")
	must(t, err)
	path := filepath.Join(dir, "bridge")
	must(t, os.Remove(path))
	raw, err := os.ReadFile(sleep)
	must(t, err)
	must(t, os.WriteFile(path, raw, 0o755))
	cmd := exec.Command(path, "60")
	must(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	_, err = open(t, dir).Install(files(dir, "1"), false)
	must(t, err)
	_, err = open(t, dir).Uninstall(nil, false)
	must(t, err)
}

// TestKilledInstall kills Install and Uninstall at any moment. Every name must exist at any time, and the next call completes
// the work.
func TestKilledInstall(t *testing.T) {
	t.Parallel()
	dir := before(t)
	was := tree(t, dir)
	var whole time.Duration // of the last run that was not killed: the machine may be busier at times
	run := func(kill time.Duration, env string) (killed bool) {
		t.Helper()
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), env, "INSTALL_DIR="+dir)
		var output strings.Builder
		cmd.Stderr = &output
		began := time.Now()
		must(t, cmd.Start())
		if kill > 0 {
			time.Sleep(kill)
			_ = cmd.Process.Kill()
		}
		err := cmd.Wait()
		if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() && kill > 0 {
			return true
		}
		if err != nil {
			t.Fatalf("%v: %s", err, output.String())
		}
		whole = time.Since(began)
		return false
	}
	run(0, "INSTALL_VERSION=")
	installed := tree(t, dir)
	kills := 0
	for i := range 60 {
		if run(rand.N(whole)+1, "INSTALL_BACK=1") {
			kills++
		}
		for _, name := range []string{"bridge", "ptp", "other"} {
			if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
				t.Fatalf("%d: after a kill: %v", i, err)
			}
		}
		if i%2 == 0 {
			run(0, "INSTALL_BACK=1")
			if now := tree(t, dir); now != was {
				t.Fatalf("%d: after uninstall\n%s\nwant\n%s", i, now, was)
			}
		}
		if run(rand.N(whole)+1, "INSTALL_VERSION=") {
			kills++
		}
		run(0, "INSTALL_VERSION=")
		if now := tree(t, dir); trimmed(now) != trimmed(installed) {
			t.Fatalf("%d: after install\n%s\nwant\n%s", i, now, installed)
		}
	}
	if kills < 40 {
		t.Errorf("only %d of 120 kills hit a running call", kills)
	}
}

// TestConcurrentInstalls checks that first installs at once keep the files of other software, and that uninstalls at once
// restore them.
func TestConcurrentInstalls(t *testing.T) {
	t.Parallel()
	for range 10 {
		dir := before(t)
		was := tree(t, dir)
		all := func(env string) {
			t.Helper()
			processes := make([]*exec.Cmd, 4)
			for i := range processes {
				processes[i] = exec.Command(os.Args[0])
				processes[i].Env = append(os.Environ(), "INSTALL_DIR="+dir, env)
				must(t, processes[i].Start())
			}
			for _, p := range processes {
				must(t, p.Wait())
			}
		}
		all("INSTALL_VERSION=1")
		if raw, err := os.ReadFile(filepath.Join(dir, "bridge")); err != nil || string(raw) != "program 1" {
			t.Errorf("bridge after install: %q, %v", raw, err)
		}
		all("INSTALL_BACK=1")
		if now := tree(t, dir); now != was {
			t.Fatalf("after uninstall\n%s\nwant\n%s", now, was)
		}
	}
}

// trimmed removes the manifest from a tree: its order may differ.
func trimmed(tree string) string {
	i := strings.Index(tree, ".fairlead/manifest.json")
	j := strings.Index(tree[i:], "\nall: ")
	return tree[:i] + tree[i+j:]
}

// TestNewTargetOfALink checks that an Install that was killed while it changed the target of a link does not take the
// old link for a file of other software: it would replace the file that is kept.
func TestNewTargetOfALink(t *testing.T) {
	t.Parallel()
	dir := before(t)
	was := tree(t, dir)
	link := func(target string) []File { return []File{{Path: filepath.Join(dir, "bridge"), Link: target}} }
	_, err := open(t, dir).Install(link("all"), false)
	must(t, err)
	tmp := filepath.Join(dir, ".bridge~", "x") // it cannot be removed, so the new link cannot be created
	must(t, os.MkdirAll(tmp, 0o755))
	if _, err := open(t, dir).Install(link("new"), false); err == nil {
		t.Fatal("the new link was created")
	}
	must(t, os.RemoveAll(filepath.Dir(tmp)))
	done, err := open(t, dir).Install(link("new"), false)
	if err != nil || !slices.Equal(actions(done), []string{Updated}) {
		t.Errorf("%v, %v, want %v", actions(done), err, Updated)
	}
	_, err = open(t, dir).Uninstall(nil, false)
	must(t, err)
	if now := tree(t, dir); now != was {
		t.Errorf("after uninstall\n%s\nwant\n%s", now, was)
	}
}

// TestInstallRepairsModes checks that Install makes a program executable again.
func TestInstallRepairsModes(t *testing.T) {
	t.Parallel()
	dir := before(t)
	_, err := open(t, dir).Install(files(dir, "1"), false)
	must(t, err)
	must(t, os.Chmod(filepath.Join(dir, "all"), 0o644))
	done, err := open(t, dir).Install(files(dir, "1"), false)
	if err != nil || !slices.Equal(actions(done), []string{Updated, Same, Same, Same}) {
		t.Errorf("%v, %v", actions(done), err)
	}
	if now := tree(t, dir); !strings.Contains(now, "all: -rwxr-xr-x program 1\n") {
		t.Error(now)
	}
}

// TestInstallWithUmask checks that users other than root can reach the plugins if root's umask is 077. It is not
// parallel: the umask is one for the process.
func TestInstallWithUmask(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cni", "bin")
	old := syscall.Umask(0o077)
	_, err := open(t, dir).Install(files(dir, "1"), false)
	syscall.Umask(old)
	must(t, err)
	for _, path := range []string{filepath.Dir(dir), dir, filepath.Join(dir, "../net.d")} {
		fi, err := os.Stat(path)
		must(t, err)
		if fi.Mode().Perm() != 0o755 {
			t.Errorf("%s: %v", path, fi.Mode())
		}
	}
}
