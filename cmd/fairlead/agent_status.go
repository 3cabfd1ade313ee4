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
		Use: "status", Short: "what the agent of this host says of itself",
		Long: "Status asks the agent of this host: whether containers here can reach those of other\n" +
			"hosts, and if not, why. It exits with 4 if the agent is not ready.",
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
			if !s.Ready {
				return silentError{exitWrong}
			}
			return nil
		},
	}
}

func (a *app) printAgent(s *agent.State) error {
	if a.json {
		return a.printJSON(s)
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
		{"objects", fmt.Sprintf("%d wanted; %d made, %d removed in %d looks, the last of %s", s.Counts.Objects, s.Counts.Made, s.Counts.Removed, s.Counts.Looks, s.Counts.LastTook.Round(time.Microsecond))}}
	if s.Bare {
		t = append(t, []string{"network", "there is no default one: " + agent.NoNetwork})
	}
	for _, w := range s.Cannot {
		t = append(t, []string{"but", indented(w)})
	}
	for _, w := range s.Why {
		t = append(t, []string{"why", indented(w)})
	}
	for _, l := range s.Left {
		t = append(t, []string{"left", l})
	}
	if s.Publish != "" {
		t = append(t, []string{"publish", s.Publish})
	}
	return t.print(a.stdout)
}

// indented keeps what has several lines beside the words on the left.
func indented(words string) string { return strings.ReplaceAll(words, "\n", "\n         ") }
