package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/fairlead/fairlead/internal/reference"
)

// insideVariable tells the process that it is already in its own namespaces. Its value is the process's directory.
const insideVariable = "FAIRLEAD_BENCH"

// enter builds the programs and runs this program again in new namespaces, which end with it. It always waits for that
// process, to clean up.
func (o options) enter(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "fairlead-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	programs := o.programs
	if programs == "" {
		programs = filepath.Join(dir, "programs")
		fmt.Fprintln(os.Stderr, "building")
		if err := build(programs); err != nil {
			return err
		}
	}
	if programs, err = filepath.Abs(programs); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe", append(os.Args[1:], "-programs", programs)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Env = append(os.Environ(), insideVariable+"="+dir)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS, Setpgid: true, Pdeathsig: syscall.SIGTERM,
	}
	err = cmd.Run()
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("creating network namespaces needs root: %w", err)
	}
	return err
}

// build creates a directory with every side's programs.
func build(dir string) error {
	if dir == "" {
		return errors.New("-build needs -programs: the directory to build into")
	}
	for _, d := range []string{"ours", "reference"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return err
		}
	}
	for out, pkg := range map[string]string{
		"bench": "./bench", "fairlead-cni": "./cmd/fairlead-cni", "fairlead": "./cmd/fairlead", "empty": "./bench/empty", "peak": "./bench/peak",
		"floor-driver": "./bench/floor", "our-driver": "./bench/driver",
	} {
		if err := compile(".", filepath.Join(dir, out), pkg); err != nil {
			return err
		}
	}
	if err := compile("bench/reference", filepath.Join(dir, "reference-driver"), "."); err != nil {
		return err
	}
	return errors.Join(linkOurs(dir), installReference(dir))
}

func compile(in, out, pkg string) error {
	out, err := filepath.Abs(out)
	if err != nil {
		return err
	}
	linked := out + "~"
	cmd := exec.Command("go", "build", "-ldflags=-s -w", "-o", linked, pkg)
	cmd.Dir = in
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s (run bench in the project's root directory): %w\n%s", pkg, err, text)
	}
	return errors.Join(install(linked, out), os.Remove(linked))
}

// install copies a program, as a package manager does. The pages of a file that the linker wrote enter the page cache
// one by one. Such a program starts up to 0.4 ms later.
func install(from, to string) error {
	raw, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.Remove(to); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.WriteFile(to, raw, 0o755)
}

func linkOurs(dir string) error {
	names, err := exec.Command(filepath.Join(dir, "fairlead-cni"), "--list").Output()
	if err != nil {
		return fmt.Errorf("ask fairlead-cni for its plugins: %w", err)
	}
	errs := []error{link("../fairlead", filepath.Join(dir, "ours", "ovs"))}
	for name := range strings.FieldsSeq(string(names)) {
		errs = append(errs, link("../fairlead-cni", filepath.Join(dir, "ours", name)))
	}
	return errors.Join(errs...)
}

func installReference(dir string) error {
	for _, name := range []string{
		"bandwidth", "bridge", "dhcp", "dummy", "firewall", "host-device", "host-local", "ipvlan", "loopback", "macvlan",
		"portmap", "ptp", "sbr", "static", "tap", "tuning", "vlan", "vrf",
	} {
		path, err := reference.InstallPlugin(name)
		if err == nil {
			err = install(path, filepath.Join(dir, "reference", name))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func link(to, name string) error {
	if err := os.Symlink(to, name); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return nil
}
