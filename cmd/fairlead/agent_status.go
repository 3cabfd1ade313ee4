package main

import (
	"fmt"
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
		Example: "  fairlead agent status\n  fairlead agent status --json | jq .reasons",
		Args:    want(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			var s agent.State
			if err := local.Open(a.libDir(), a.runDir()).Call(c.Context(), local.OpAgent, struct{}{}, &s); err != nil {
				return err
			}
			if err := a.printAgent(&s); err != nil {
				return err
			}
			if !s.Ready || len(s.Unreachable) > 0 {
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
	if s.StoreError != "" {
		store = s.StoreError
	}
	t := table{{"node", s.Node}, {"ready", ready}, {"store", store}, {"nodes", fmt.Sprint(s.Nodes)},
		{"objects", fmt.Sprintf("%d desired; %d created, %d removed in %d reconciliations; the last one took %s", s.Counts.Objects, s.Counts.Created, s.Counts.Removed, s.Counts.Reconciles, s.Counts.LastTook.Round(time.Microsecond))}}
	if s.NoDefaultNetwork {
		t = append(t, []string{"network", "there is no default network: " + agent.NoNetwork})
	}
	for _, group := range []struct {
		label string
		texts []string
	}{{"failed", s.Failures}, {"not ready", s.Reasons}, {"unreachable", s.Unreachable}, {"invalid", s.Invalid}} {
		for _, text := range group.texts {
			t = append(t, []string{group.label, text})
		}
	}
	if s.PublishError != "" {
		t = append(t, []string{"unpublished", s.PublishError})
	}
	return t.print(a.stdout)
}
