package main

import (
	"context"
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/internal/demo"
)

const demoLong = `Demo attaches six containers (network namespaces) to the three networks of the example
configurations. The containers reach each other, the host, a network outside, and a host port. The
demo verifies and removes all attachments, and proves that nothing is left. It goes on with the
networks of flannel and minicni, and with macvlan and DHCP if the kernel supports macvlan.

Everything happens in a network and a mount namespace of its own, so it is safe on any machine. It
needs root, ip, nft, ping and dnsmasq; "make demo" installs them on Debian.`

const demoClusterLong = `Demo-cluster creates three hosts and an etcd as namespaces of this machine, with containers on each
host. It connects them with each backend that the kernel supports. While a packet passes each
millisecond, it kills an agent and stops the store, and no packet may be lost. At the end it creates
two isolated networks with the same addresses.

It changes nothing outside these namespaces. It needs root, ip, nft, ping, curl and etcd;
"make demo-cluster" installs them on Debian.`

// demoFlags are the flags of the demos.
type demoFlags struct{ here, fast, noColor bool }

func (a *app) demoOptions(f demoFlags) demo.Options {
	onTerminal := terminal(a.stdout)
	return demo.Options{
		Stdout: a.stdout, Stderr: a.stderr, Getenv: a.getenv, PluginPath: a.pluginPath(), Here: f.here, Fast: f.fast,
		Color:    onTerminal && !f.noColor && a.getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb",
		Terminal: onTerminal, JSON: a.structured(), Program: os.Args,
	}
}

// runDemo returns the RunE of a demo.
func (a *app) runDemo(f *demoFlags, run func(context.Context, demo.Options) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, _ []string) error {
		err := run(c.Context(), a.demoOptions(*f))
		e, ok := errors.AsType[*demo.ReportedError](err)
		switch {
		case !ok:
			return err
		case e.Err == nil:
			return silentError{e.Code}
		}
		if a.format == formatJSON && c.Hidden {
			a.report(e.Err)
		}
		return silentError{exitCode(e.Err)}
	}
}

func (f *demoFlags) add(c *cobra.Command) *cobra.Command {
	c.Flags().BoolVar(&f.fast, "fast", false, "Do not pause for the reader.")
	c.Flags().BoolVar(&f.noColor, "no-color", false, "Print no colors. Colors are for terminals only, and NO_COLOR disables them, too.")
	return c
}

// demoCommands returns the command and, hidden, the part of it that runs inside the namespaces.
func (a *app) demoCommands() []*cobra.Command {
	build := func(use string, run func(context.Context, demo.Options) error) *cobra.Command {
		f := &demoFlags{}
		c := &cobra.Command{
			Use: use, Short: "show what Fairlead does, safe on any machine", GroupID: "more", Long: demoLong,
			Example: "  sudo fairlead demo\n  sudo fairlead demo --fast --no-color",
			Args:    want(0, 0), RunE: a.runDemo(f, run),
		}
		c.Flags().BoolVar(&f.here, "here", false, "Use this host's own network namespace, so that you can inspect it, and restore it afterwards. Fails if the host has networks that would conflict.")
		return f.add(c)
	}
	inside := build("demo-inside", demo.Inside)
	inside.Hidden, inside.GroupID = true, ""
	return []*cobra.Command{build("demo", demo.Host), inside}
}

func (a *app) demoClusterCommand() *cobra.Command {
	f := &demoFlags{}
	return f.add(&cobra.Command{
		Use: "demo-cluster", Short: "show a cluster of several hosts, safe on any machine", GroupID: "more", Long: demoClusterLong,
		Example: "  sudo fairlead demo-cluster",
		Args:    want(0, 0), RunE: a.runDemo(f, demo.Cluster),
	})
}
