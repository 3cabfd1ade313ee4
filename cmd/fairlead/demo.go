package main

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

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cni/invoke"
)

const demoLong = `Demo shows the main job: six containers (network namespaces) on three networks get
interfaces, addresses and a host port from the example configurations as they
stand, reach each other, the host and beyond, are checked, and are removed without
a trace. Everything happens in a host of its own, a network and a mount namespace,
so it is safe anywhere. It needs root, ip, nft, ping and dnsmasq.`

type demoOptions struct {
	here, fast, noColor bool
}

func (o demoOptions) flags() (out []string) {
	for _, f := range []struct {
		set  bool
		name string
	}{{o.here, "--here"}, {o.fast, "--fast"}, {o.noColor, "--no-color"}} {
		if f.set {
			out = append(out, f.name)
		}
	}
	return out
}

// demoCommands are the command and, hidden, the part of it that plays inside
// the namespaces.
func (a *app) demoCommands() []*cobra.Command {
	make := func(use string, run func(context.Context, demoOptions) error) *cobra.Command {
		var o demoOptions
		c := &cobra.Command{
			Use: use, Short: "a tour of the main job, safe on any machine", GroupID: "more", Long: demoLong,
			Example: "  sudo fairlead demo\n  sudo fairlead demo --fast --no-color",
			Args:    want(0, 0),
			RunE:    func(c *cobra.Command, _ []string) error { return run(c.Context(), o) },
		}
		c.Flags().BoolVar(&o.here, "here", false, "play in this host's own network namespace, where you can look on; it is put back afterwards")
		c.Flags().BoolVar(&o.fast, "fast", false, "without pauses for the reader")
		c.Flags().BoolVar(&o.noColor, "no-color", false, "without colours, which there are on a terminal only")
		return c
	}
	inside := make("demo-inside", a.demoInside)
	inside.Hidden, inside.GroupID = true, ""
	return []*cobra.Command{make("demo", a.demo), inside}
}

// demoWait is how long the part inside may take to clean up after Ctrl-C.
const demoWait = 20 * time.Second

// demo looks at the machine, plays in namespaces of its own, and looks again.
func (a *app) demo(ctx context.Context, o demoOptions) error {
	if err := a.demoPossible(); err != nil {
		return err
	}
	before, err := machine(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	var steps bytes.Buffer // with --json
	played := a.playInside(ctx, o, &steps)
	after, err := machine(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	p := a.newPrinter(o)
	same := p.machineSame(before, after)
	if a.json && steps.Len() > 0 {
		err = a.printJSON(map[string]any{"ok": played == nil, "machineUnchanged": same, "steps": json.RawMessage(steps.Bytes())})
	}
	if played != nil || err != nil {
		return errors.Join(played, err)
	}
	if o.here && !same {
		return errors.New("the machine is not as it was: see above")
	}
	p.success("Everything worked, in %.1f s.", time.Since(began).Seconds())
	return nil
}

// playInside runs the demo's other part in new namespaces.
func (a *app) playInside(ctx context.Context, o demoOptions, steps io.Writer) error {
	args := append([]string{"demo-inside"}, o.flags()...)
	cmd := exec.CommandContext(ctx, "/proc/self/exe", args...)
	cmd.Stdout, cmd.Stderr = a.stdout, a.stderr
	if a.json {
		cmd.Args, cmd.Stdout = append(cmd.Args, "--json"), steps
	}
	cmd.Args[0] = "fairlead"
	cmd.Env = append(os.Environ(), "CNI_PATH="+strings.Join(a.pluginPath(), ":"))
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = demoWait
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET}
	if o.here {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNS
	}
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() > 0 {
		return silentError{exit.ExitCode()}
	}
	if err != nil {
		return fmt.Errorf("play the demo: %w", err)
	}
	return nil
}

// demoPossible says what is missing, and how to get it.
func (a *app) demoPossible() error {
	if os.Geteuid() != 0 {
		return errors.New("the demo makes network namespaces, which needs root\nType: sudo " + strings.Join(os.Args, " "))
	}
	packages := []string{}
	for _, need := range [][2]string{{"ip", "iproute2"}, {"nft", "nftables"}, {"ping", "iputils-ping"}, {"dnsmasq", "dnsmasq-base"}} {
		if _, err := exec.LookPath(need[0]); err != nil {
			packages = append(packages, need[1])
		}
	}
	missing := []string{}
	for _, t := range demoTypes() {
		if _, err := invoke.FindInPath(t, a.pluginPath()); err != nil {
			missing = append(missing, t)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("the examples name %s, which are not on CNI_PATH %s\nType: make build, and CNI_PATH=$PWD/bin/cni fairlead demo", join(missing), join(a.pluginPath()))
	}
	if len(packages) == 0 {
		return nil
	}
	return fmt.Errorf("the demo needs more than there is\nType: apt-get install %s", strings.Join(packages, " "))
}
