package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// programs are built for every architecture.
var programs = []string{"fairlead", "fairlead-cni"}

// sourceTime returns SOURCE_DATE_EPOCH if it is set (reproducible-builds.org), or the time of the last commit.
func sourceTime(root string) (time.Time, error) {
	seconds := os.Getenv("SOURCE_DATE_EPOCH")
	if seconds == "" {
		out, err := command(root, nil, "git", "log", "-1", "--format=%ct")
		if err != nil {
			return time.Time{}, fmt.Errorf("find the time of the last commit (or set SOURCE_DATE_EPOCH): %w", err)
		}
		seconds = strings.TrimSpace(string(out))
	}
	n, err := strconv.ParseInt(seconds, 10, 64)
	return time.Unix(n, 0).UTC(), err
}

// buildPrograms compiles the programs without cgo, paths or build identifiers, so that they depend on the source alone.
func (r *release) buildPrograms() error {
	for _, arch := range r.archs {
		args := []string{
			"build", "-trimpath", "-buildvcs=false",
			"-ldflags", "-s -w -buildid= -X github.com/fairlead/fairlead/cni.version=" + r.version,
			"-o", filepath.Join(r.stage, arch) + "/",
		}
		for _, p := range programs {
			args = append(args, "./cmd/"+p)
		}
		if _, err := command(r.root, []string{"CGO_ENABLED=0", "GOOS=linux", "GOARCH=" + arch, "GOFLAGS="}, "go", args...); err != nil {
			return err
		}
	}
	return nil
}

// generate writes the shell completions, the man pages and the list of plugins. It runs a program of this machine's
// architecture, because the texts do not depend on the architecture.
func (r *release) generate() error {
	host := r.program(runtime.GOARCH, "fairlead")
	if _, err := os.Stat(host); err != nil {
		return fmt.Errorf("-arch has to contain this machine's architecture, %s: %w", runtime.GOARCH, err)
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		text, err := command(r.root, nil, host, "completion", shell)
		if err != nil {
			return err
		}
		if err := os.WriteFile(r.generated(shell), text, 0o644); err != nil {
			return err
		}
	}
	if err := os.Mkdir(r.generated("man"), 0o755); err != nil {
		return err
	}
	env := []string{"FAIRLEAD_MAN=" + r.generated("man"), fmt.Sprintf("SOURCE_DATE_EPOCH=%d", r.time.Unix()), "FAIRLEAD_MAN_VERSION=" + r.version}
	_, err := command(r.root, env, "go", "test", "-count=1", "-run", "^TestManPages$", "./cmd/fairlead")
	return err
}

// generated returns the path of a file that generate writes.
func (r *release) generated(name string) string { return filepath.Join(r.stage, name) }

// plugins lists the plugins, and the program that serves each.
func (r *release) plugins() (map[string]string, error) {
	out, err := command(r.root, nil, r.program(runtime.GOARCH, "fairlead-cni"), "--list")
	if err != nil {
		return nil, err
	}
	list := map[string]string{"ovs": "fairlead"}
	for _, name := range strings.Fields(string(out)) {
		list[name] = "fairlead-cni"
	}
	return list, nil
}

// imageName returns the image of the agents that "fairlead kubernetes install" creates. Its tag is the version of the
// release, or latest for other versions.
func (r *release) imageName() (string, error) {
	out, err := command(r.root, nil, r.program(runtime.GOARCH, "fairlead"), "kubernetes", "manifest")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(out)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "image: "); ok {
			return name, nil
		}
	}
	return "", fmt.Errorf("fairlead kubernetes manifest names no image")
}

// command runs a program and returns its output. An error carries what the program wrote to standard error.
func command(dir string, env []string, name string, args ...string) ([]byte, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s%s", filepath.Base(name), strings.Join(args, " "), err, stdout.Bytes(), stderr.Bytes())
	}
	return stdout.Bytes(), nil
}
