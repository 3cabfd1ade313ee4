package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// daemonArgs translates "dhcp daemon ...", the daemon of the reference plugin, to the command line of fairlead. It returns
// false for any other command line.
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
			a = "-" + a // the reference accepts -socketpath and --socketpath
		}
		args = append(args, a)
	}
	return args, true
}

// execDaemon replaces this process by fairlead, which contains the daemon: its libraries would slow down the start of every
// plugin. It only returns if that fails.
func execDaemon(args []string) error {
	path, err := fairlead()
	if err != nil {
		return err
	}
	if err := syscall.Exec(path, args, os.Environ()); err != nil {
		return fmt.Errorf("start %s: %w", strings.Join(append([]string{path}, args[1:]...), " "), err)
	}
	return nil
}

// fairlead returns the path of the program fairlead: next to this program, in the parent directory, or on PATH.
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
