// Package built keeps programs of others, which tests build from source through the
// Go module proxy, in the user's cache directory, outside the tree.
package built

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// Program returns the path of a program in a directory of the cache. If it is not
// there, the command that build gives makes it in a directory of its own; dir
// names the versions, so that another version is another program. Of several
// processes that want it at once the first builds and the others wait.
func Program(dir, name string, build func(temp string) *exec.Cmd) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a place for %s: %w", name, err)
	}
	dir = filepath.Join(cache, "fairlead-test", dir)
	// The test's thread may be in a network namespace without a way out; a new
	// goroutine runs on one that is not.
	done := make(chan error)
	go func() { done <- install(dir, name, build) }()
	return filepath.Join(dir, name), <-done
}

// Install is a build by go install of a package at a version, with the linker's
// flags.
func Install(pkg, ldflags string) func(temp string) *exec.Cmd {
	return func(temp string) *exec.Cmd {
		cmd := exec.Command("go", "install", "-ldflags="+ldflags, pkg)
		cmd.Dir = temp // no go.mod near: the module's own versions count
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

// begin builds beside first and renames: what is in dir is whole.
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
