package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/agent/address/local"
)

func (a *app) agentStatusCommand() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "show the state of the agent on this host",
		Long: "Status asks the agent of this host whether containers here can reach those of other\n" +
			"hosts, and if not, why. Exit code 4: the agent is not ready, or it cannot reach a node.",
		Example: "  fairlead agent status\n  fairlead agent status --json | jq .why",
		Args:    want(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			var s agent.State
			if err := local.Open(a.libDir(), a.runDir()).Call(c.Context(), local.OpAgent, struct{}{}, &s); err != nil {
				return err
			}
			if err := a.printAgent(&s); err != nil {
				return err
			}
			if !s.Ready || len(s.Problems) > 0 {
				return silentError{exitWrong}
			}
			return nil
		},
	}
}

func (a *app) printAgent(s *agent.State) error {
	if a.structured() {
		return a.printData(s)
	}
	ready := "yes"
	if !s.Ready {
		ready = "no"
	}
	store := "answers"
	if s.Store != "" {
		store = s.Store
	}
	t := table{{"node", s.Node}, {"ready", ready}, {"store", store}, {"nodes", fmt.Sprint(s.Nodes)},
		{"objects", fmt.Sprintf("%d desired; %d created, %d removed in %d reconciliations; the last one took %s", s.Counts.Objects, s.Counts.Created, s.Counts.Removed, s.Counts.Reconciles, s.Counts.LastTook.Round(time.Microsecond))}}
	if s.NoDefaultNetwork {
		t = append(t, []string{"network", "there is no default network: " + agent.NoNetwork})
	}
	for _, w := range s.Cannot {
		t = append(t, []string{"cannot", indented(w)})
	}
	for _, w := range s.Why {
		t = append(t, []string{"why", indented(w)})
	}
	for _, p := range s.Problems {
		t = append(t, []string{"no path", indented(p)})
	}
	for _, l := range s.Invalid {
		t = append(t, []string{"skipped", l})
	}
	if s.Publish != "" {
		t = append(t, []string{"publish", s.Publish})
	}
	return t.print(a.stdout)
}

// indented aligns the further lines of a text with its first line in the table.
func indented(text string) string { return strings.ReplaceAll(text, "\n", "\n         ") }
