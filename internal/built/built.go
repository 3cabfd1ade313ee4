// Package built builds third-party programs for tests from source, through the Go module proxy. It keeps them in the
// user's cache directory, outside the tree.
package built

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// Program returns the path of a program in a directory of the cache. If it does not exist, Program runs the command
// from build in a temporary directory. The version is part of dir, so another version is another program. If several
// processes need it at once, the first builds it and the others wait.
func Program(dir, name string, build func(temp string) *exec.Cmd) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a place for %s: %w", name, err)
	}
	dir = filepath.Join(cache, "fairlead-test", dir)
	// The test's thread may be in a network namespace without a connection. A new goroutine runs on another thread.
	done := make(chan error)
	go func() { done <- install(dir, name, build) }()
	return filepath.Join(dir, name), <-done
}

// Install returns a build that runs go install for a package at a version, with linker flags.
func Install(pkg, ldflags string) func(temp string) *exec.Cmd {
	return func(temp string) *exec.Cmd {
		cmd := exec.Command("go", "install", "-ldflags="+ldflags, pkg)
		cmd.Dir = temp // no go.mod nearby, so the module's own versions apply
		cmd.Env = append(os.Environ(), "GOBIN="+temp, "GOFLAGS=", "CGO_ENABLED=0", "GOWORK=off")
		return cmd
	}
}

func install(dir, name string, build func(temp string) *exec.Cmd) error {
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	return begin(dir, name, build)
}

// begin builds next to dir and then renames, so that dir is always complete.
func begin(dir, name string, build func(temp string) *exec.Cmd) error {
	temp, err := os.MkdirTemp(dir, ".build-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	cmd := build(temp)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s (%v): %w\n%s", name, cmd.Args, err, out)
	}
	return os.Rename(filepath.Join(temp, name), filepath.Join(dir, name))
}
