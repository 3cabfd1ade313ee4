package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/doctor"
	"github.com/fairlead/fairlead/doctor/gather"
)

const doctorLong = `Doctor examines everything that the packets of a container, or of all containers, pass: the
namespace, links, addresses, routes, neighbours, bridges, forwarding, all nftables rules, host ports,
connection tracking, MTU, name service, the owner of the address, and plugins. It prints each
problem with its consequence and the command that fixes it. It changes nothing. It sends nothing
either, unless --probe is given: then it pings the gateways from inside the containers.

CONTAINER is what list shows: an ID or its beginning, or the path or name of a namespace. Without
it, doctor also examines the host's networks and its agent. docs/troubleshooting.md lists all
findings. Exit code 4: doctor found a problem.`

func (a *app) doctorCommand() *cobra.Command {
	var probe bool
	c := &cobra.Command{
		Use: "doctor [CONTAINER]", Short: "find what is wrong, and the command that fixes it", GroupID: "look", Long: doctorLong,
		Example: `  fairlead doctor
  fairlead doctor --probe
  fairlead doctor --json | jq -r '.findings[].fix'`,
		Args: want(0, 1), ValidArgsFunction: a.completeContainers,
		RunE: func(c *cobra.Command, args []string) error {
			container := ""
			if len(args) > 0 {
				container = args[0]
			}
			return a.doctor(c.Context(), container, probe)
		},
	}
	c.Flags().BoolVar(&probe, "probe", false, "Ping the gateways from inside the containers, and wait for at most one second for each.")
	return c
}

// diagnosis is the output of doctor.
type diagnosis struct {
	Attachments int              `json:"attachments"`
	Findings    []doctor.Finding `json:"findings"`
	Unseen      []string         `json:"unseen"` // what could not be examined
}

func (a *app) doctor(ctx context.Context, container string, probe bool) error {
	o := gather.Options{
		Runtime: a.runtime(a.pluginPath()), StateDir: a.getenv(attach.RootVariable), RunDir: a.runDir(), LibDir: a.libDir(), ConfDir: a.confDir(),
		PluginDirs: a.runtimePluginPath(), Probe: probe, Progress: a.counter("doctor"),
	}
	if container != "" {
		o.Include = func(r *attach.Record) bool { return isContainer(r, container) }
	}
	facts, unseen, err := gather.Facts(ctx, o)
	if err != nil {
		return err
	}
	if os.Geteuid() != 0 && errors.Is(facts.StateDir, os.ErrPermission) { // nothing is wrong: the user may not look
		return fmt.Errorf("examine the attachments: %w", facts.StateDir)
	}
	if container != "" && len(facts.Attachments) == 0 {
		return fmt.Errorf("there is no attachment of a container %s\nType: fairlead list", container)
	}
	d := diagnosis{len(facts.Attachments), append([]doctor.Finding{}, doctor.Examine(facts)...), append([]string{}, unseen...)} // not null in JSON
	if a.structured() {
		err = a.printData(d)
	} else {
		names := map[string]string{}
		for _, at := range facts.Attachments {
			names[at.Container] = shownName(at.Container, at.Netns)
		}
		a.printDiagnosis(d, names)
	}
	if err == nil && len(d.Findings) > 0 {
		return silentError{exitWrong}
	}
	return err
}

// printDiagnosis prints a diagnosis with the containers' names, by their IDs.
func (a *app) printDiagnosis(d diagnosis, names map[string]string) {
	printed := ""
	for _, f := range d.Findings {
		where := "the host"
		if f.Container != "" {
			where = f.Network + " " + cmp.Or(names[f.Container], f.Container) + " " + f.IfName
		}
		if where != printed {
			fmt.Fprintln(a.stdout, where+":")
			printed = where
		}
		fmt.Fprintf(a.stdout, "  %s: %s\n    effect: %s\n    fix:    %s\n", f.Name, f.Problem, f.Effect, f.Fix)
	}
	for _, u := range d.Unseen {
		fmt.Fprintln(a.stderr, "fairlead: not examined:", u)
	}
	switch examined := count(d.Attachments, "attachment") + " and the host"; {
	case len(d.Findings) > 0:
	case len(d.Unseen) > 0:
		fmt.Fprintf(a.stdout, "Found nothing wrong, but not everything of %s could be examined.\n", examined)
	default:
		fmt.Fprintf(a.stdout, "Nothing is wrong: examined %s.\n", examined)
	}
}
