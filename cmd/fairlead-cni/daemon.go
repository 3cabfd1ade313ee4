package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// daemonArgs are those of "dhcp daemon ...", as the reference's plugin is
// started to keep leases, in the form that fairlead takes; false if it is not
// asked for.
func daemonArgs(argv []string) ([]string, bool) {
	if filepath.Base(argv[0]) != "dhcp" && len(argv) > 1 {
		argv = argv[1:]
	}
	if filepath.Base(argv[0]) != "dhcp" || len(argv) < 2 || argv[1] != "daemon" {
		return nil, false
	}
	args := []string{"fairlead", "dhcp-daemon"}
	for _, a := range argv[2:] {
		if len(a) > 2 && a[0] == '-' && a[1] != '-' {
			a = "-" + a // -socketpath and --socketpath are the same there
		}
		args = append(args, a)
	}
	return args, true
}

// becomeDaemon turns this process into fairlead, which has the daemon: its
// libraries would make every plugin slow to start. It returns only an error.
func becomeDaemon(args []string) error {
	path, err := fairlead()
	if err != nil {
		return err
	}
	if err := syscall.Exec(path, args, os.Environ()); err != nil {
		return fmt.Errorf("start %s: %w", strings.Join(append([]string{path}, args[1:]...), " "), err)
	}
	return nil
}

// fairlead is the program beside this one, beside its directory, or on PATH.
func fairlead() (string, error) {
	self, err := os.Executable()
	if err == nil {
		self, err = filepath.EvalSymlinks(self)
	}
	if err != nil {
		return "", err
	}
	dir := filepath.Dir(self)
	for _, p := range []string{filepath.Join(dir, "fairlead"), filepath.Join(dir, "..", "fairlead")} {
		if info, err := os.Stat(p); err == nil && info.Mode().IsRegular() {
			return p, nil
		}
	}
	path, err := exec.LookPath("fairlead")
	if err != nil {
		return "", fmt.Errorf("the DHCP daemon is in the program fairlead, which is neither in %s nor on PATH: %w", dir, err)
	}
	return path, nil
}
