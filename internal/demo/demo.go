// Package demo shows what Fairlead does, on any machine: one host with several networks, or a cluster of several hosts. Both
// demos run in network namespaces of their own.
package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/cni/invoke"
)

// Options say how a demo runs.
type Options struct {
	Stdout, Stderr io.Writer
	Getenv         func(string) string
	PluginPath     []string
	Here           bool // use this host's own network namespace, and restore it afterwards
	Fast           bool // no pauses for the reader
	Color          bool
	Terminal       bool     // a person reads Stdout
	JSON           bool     // print the steps as JSON
	Program        []string // the command line that started the demo, for advice
}

// ReportedError is a failure that the demo has printed.
type ReportedError struct {
	Code int // exit code of the part that failed; 0 if Err is set
	Err  error
}

func (e *ReportedError) Error() string {
	if e.Err != nil {
		return e.Err.Error()
	}
	return fmt.Sprintf("exit code %d", e.Code)
}

// Unwrap returns the cause.
func (e *ReportedError) Unwrap() error { return e.Err }

func (o Options) flags() (out []string) {
	for _, f := range []struct {
		set  bool
		name string
	}{{o.Here, "--here"}, {o.Fast, "--fast"}, {!o.Color, "--no-color"}} {
		if f.set {
			out = append(out, f.name)
		}
	}
	return out
}

// cleanupTimeout limits the cleanup after Ctrl-C.
const cleanupTimeout = 20 * time.Second

// Host runs the demo of one host in new namespaces, and compares this machine before and after.
func Host(ctx context.Context, o Options) error {
	if err := o.possible(); err != nil {
		return err
	}
	before, err := machine(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	var steps bytes.Buffer // with JSON
	played := o.runInside(ctx, &steps)
	after, err := machine(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	p := newPrinter(o)
	same := p.machineSame(before, after)
	if o.JSON && steps.Len() > 0 {
		err = o.print(map[string]any{"ok": played == nil, "machineUnchanged": same, "steps": json.RawMessage(steps.Bytes())})
	}
	if played != nil || err != nil {
		return errors.Join(played, err)
	}
	if o.Here && !same {
		return errors.New("the demo changed this machine: see above")
	}
	p.success("Everything worked, in %.1f s.", time.Since(began).Seconds())
	return nil
}

// print prints a value as JSON.
func (o Options) print(v any) error {
	raw, err := json.MarshalIndent(v, "", "    ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(o.Stdout, string(raw))
	return err
}

// runInside runs the hidden command demo-inside, which calls Inside, in new namespaces.
func (o Options) runInside(ctx context.Context, steps io.Writer) error {
	args := append([]string{"demo-inside"}, o.flags()...)
	cmd := exec.CommandContext(ctx, "/proc/self/exe", args...)
	cmd.Stdout, cmd.Stderr = o.Stdout, o.Stderr
	if o.JSON {
		cmd.Args, cmd.Stdout = append(cmd.Args, "--json"), steps
	}
	cmd.Args[0] = "fairlead"
	cmd.Env = append(os.Environ(), "CNI_PATH="+strings.Join(o.PluginPath, ":"))
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = cleanupTimeout
	// It has a process group of its own: a terminal sends Ctrl-C to all of a group, and a second signal would end it without
	// its clean-up.
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET, Setpgid: true}
	if o.Here {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNS
	}
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() > 0 {
		return &ReportedError{Code: exit.ExitCode()}
	}
	if err != nil {
		return fmt.Errorf("run the demo: %w", err)
	}
	return nil
}

// possible reports what the demo needs and this machine lacks, and the command that installs it.
func (o Options) possible() error {
	if os.Geteuid() != 0 {
		return errors.New("the demo creates network namespaces, which needs root\nType: sudo " + strings.Join(o.Program, " "))
	}
	packages := []string{}
	for _, need := range [][2]string{{"ip", "iproute2"}, {"nft", "nftables"}, {"ping", "iputils-ping"}, {"dnsmasq", "dnsmasq-base"}} {
		if _, err := exec.LookPath(need[0]); err != nil {
			packages = append(packages, need[1])
		}
	}
	missing := []string{}
	for _, t := range pluginTypes() {
		if _, err := invoke.FindInPath(t, o.PluginPath); err != nil {
			missing = append(missing, t)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("the examples use the plugins %s, which are not on CNI_PATH %s\nType: make build, and CNI_PATH=$PWD/bin/cni fairlead demo", commas(missing), commas(o.PluginPath))
	}
	if len(packages) == 0 {
		return nil
	}
	return fmt.Errorf("the demo needs programs that are not installed\nType: apt-get install %s", strings.Join(packages, " "))
}

func commas(words []string) string { return strings.Join(words, ", ") }
