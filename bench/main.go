// Command bench measures Fairlead's plugins beside the reference's and beside
// the kernel's floor, in turn (A B C A B C), so that a noisy machine moves all
// three. It plays in a host of its own: a network namespace, and state
// directories of its own.
//
//	go run ./bench [-n ROUNDS] [-case REGEXP] [-json FILE] [-write FILE]
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"

	"github.com/fairlead/fairlead/internal/reference"
)

func main() {
	n := flag.Int("n", 60, "rounds of each case")
	pattern := flag.String("case", "", "only cases that match this regular `expression`")
	jsonFile := flag.String("json", "", "write the figures as JSON to this `file`")
	page := flag.String("write", "", "write the page with the table to this `file`")
	flag.Parse()
	if os.Getenv(insideVariable) == "" {
		os.Exit(enter())
	}
	if err := run(*n, *pattern, *jsonFile, *page); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(n int, pattern, jsonFile, page string) error {
	want, err := regexp.Compile(pattern)
	if err != nil {
		return err
	}
	b, err := prepare()
	if err != nil {
		return err
	}
	var rows []row
	for _, c := range cases() {
		if !want.MatchString(c.name) {
			continue
		}
		fmt.Fprintf(os.Stderr, "%-40s", c.name)
		r, err := b.measure(c, n)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		fmt.Fprintln(os.Stderr, "done")
		rows = append(rows, r...)
	}
	text := table(rows)
	fmt.Print(text)
	if jsonFile != "" {
		raw, err := json.MarshalIndent(rows, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(jsonFile, append(raw, '\n'), 0o644); err != nil {
			return err
		}
	}
	if page != "" {
		return os.WriteFile(page, []byte(markdown(rows, n)), 0o644)
	}
	return nil
}

// insideVariable says that the process is in its own host already, and where
// the programs are that were built before.
const insideVariable = "FAIRLEAD_BENCH"

// enter builds what is needed and runs this program again in a host of its own.
func enter() int {
	dir, err := os.MkdirTemp("", "fairlead-bench")
	if err == nil {
		defer os.RemoveAll(dir)
		err = build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), insideVariable+"="+dir)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS}
	if err := cmd.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench: needs root:", err)
		return 1
	}
	return 0
}

func build(dir string) error {
	for _, name := range []string{"loopback", "bridge", "ptp", "host-local", "portmap"} {
		path, err := reference.InstallPlugin(name)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Join(dir, "reference"), 0o755); err != nil {
			return err
		}
		if err := os.Symlink(path, filepath.Join(dir, "reference", name)); err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Join(dir, "ours"), 0o755); err != nil {
			return err
		}
		if err := os.Symlink("../fairlead-cni", filepath.Join(dir, "ours", name)); err != nil {
			return err
		}
	}
	for _, pkg := range []string{"./cmd/fairlead-cni", "./bench/empty"} {
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", dir, pkg)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", pkg, err, out)
		}
	}
	return nil
}
