package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/doctor"
)

const doctorLong = `Doctor looks at everything that packets of a container pass, or of all containers,
and at the host, and says what is wrong: where, what follows from it, and the
command that mends it. It changes nothing and sends nothing, unless --probe is
given: then it pings the gateways from inside the containers.

CONTAINER is what list shows: an ID or its beginning, or a namespace's path or name.
Exit code 4: something is wrong.`

func (a *app) doctorCommand() *cobra.Command {
	var probe bool
	c := &cobra.Command{
		Use: "doctor [CONTAINER]", Short: "say what is wrong, and what mends it", GroupID: "look", Long: doctorLong,
		Example: `  fairlead doctor
  fairlead doctor web --probe
  fairlead doctor --json | jq -r '.findings[].mend'`,
		Args: want(0, 1),
		RunE: func(c *cobra.Command, args []string) error {
			container := ""
			if len(args) > 0 {
				container = args[0]
			}
			return a.doctor(c.Context(), container, probe)
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return a.containerNames(), cobra.ShellCompDirectiveNoFileComp
		},
	}
	c.Flags().BoolVar(&probe, "probe", false, "ping the gateways from inside the containers, a second at most for each")
	return c
}

// diagnosis is what doctor prints.
type diagnosis struct {
	Attachments int              `json:"attachments"`
	Findings    []doctor.Finding `json:"findings"`
	Unseen      []string         `json:"unseen"` // what could not be looked at
}

func (a *app) doctor(ctx context.Context, container string, probe bool) error {
	l := &looker{app: a, container: container, probe: probe}
	facts, err := l.look(ctx)
	if err != nil {
		return err
	}
	if container != "" && len(facts.Attachments) == 0 {
		return fmt.Errorf("there is no attachment of a container %s\nType: fairlead list", container)
	}
	d := diagnosis{len(facts.Attachments), doctor.Examine(facts), l.unseen}
	if d.Findings == nil {
		d.Findings = []doctor.Finding{} // not null in JSON
	}
	if d.Unseen == nil {
		d.Unseen = []string{}
	}
	if a.json {
		err = a.printJSON(d)
	} else {
		a.printDiagnosis(d)
	}
	if err == nil && len(d.Findings) > 0 {
		return silentError{exitWrong}
	}
	return err
}

func (a *app) printDiagnosis(d diagnosis) {
	at := ""
	for _, f := range d.Findings {
		where := "the host"
		if f.Container != "" {
			where = f.Network + " " + f.Container + " " + f.IfName
		}
		if where != at {
			fmt.Fprintln(a.stdout, where+":")
			at = where
		}
		fmt.Fprintf(a.stdout, "  %s: %s\n    so:   %s\n    mend: %s\n", f.Name, f.Problem, f.Follows, f.Mend)
	}
	for _, u := range d.Unseen {
		fmt.Fprintln(a.stderr, "fairlead: not looked at:", u)
	}
	if len(d.Findings) == 0 {
		fmt.Fprintf(a.stdout, "Nothing is wrong: looked at %d attachments and the host.\n", d.Attachments)
	}
}
