package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/policy"
)

func (a *app) policyStatus(agent *agentFlags) *cobra.Command {
	f := &policyFlags{agent: agent}
	c := &cobra.Command{
		Use: "status", Short: "show where policies are not in force",
		Long: "Status lists the policies of a cluster, with the number of pods that each one selects now, and the\n" +
			"nodes of these pods where policy is not in force. An agent reports that after 30 seconds. Exit\n" +
			"code 4: policy is not in force on a node.",
		Example: "  fairlead policy status\n  fairlead policy status -o json\n  kubectl get netpol,pod,ns,node -A -o yaml | fairlead policy status -f -",
		Args:    want(0, 0),
	}
	f.add(c)
	c.RunE = func(c *cobra.Command, _ []string) error { return a.statusOfPolicies(c.Context(), f) }
	return c
}

// policyState is a policy with the nodes where it is not in force.
type policyState struct {
	Policy     string   `json:"policy"`
	Endpoints  int      `json:"endpoints"`
	NotInForce []string `json:"notInForce"` // nodes of the endpoints
	Invalid    []string `json:"invalid,omitempty"`
}

// policyStates is the status of a cluster's policies.
type policyStates struct {
	Policies []policyState     `json:"policies"`
	Nodes    map[string]string `json:"nodes"` // where policy is not in force, and why
}

func (a *app) statusOfPolicies(ctx context.Context, f *policyFlags) error {
	w, err := a.world(ctx, f)
	if err != nil {
		return err
	}
	if conf := a.withoutKubernetes(f); len(f.files) == 0 && conf != nil && conf.Policy.Directory != "" {
		for _, n := range w.Nodes { // this host
			n.Problem = a.problemOfFiles(ctx, f, n.Name)
		}
	}
	out := statesOf(w)
	if err := a.printStates(out); err != nil {
		return err
	}
	if len(out.Nodes) > 0 {
		return silentError{exitWrong}
	}
	return nil
}

// problemOfFiles says why the policies in files are not in force on this host, or returns "". It asks the kernel, and
// the store, which has what the agent reports.
func (a *app) problemOfFiles(ctx context.Context, f *policyFlags, node string) string {
	if _, err := readKernel(ctx); err != nil {
		why, _, _ := strings.Cut(err.Error(), "\n") // the rest is about other commands
		return why
	}
	snap, err := a.snapshot(ctx, f, cluster.NodesPrefix)
	if err != nil {
		fmt.Fprintf(a.stderr, "cannot read the agent's report about network policy, so only the kernel was checked: %v\n", err)
		return ""
	}
	if n := snap.Nodes[node]; n != nil {
		return n.PolicyProblem
	}
	return ""
}

func statesOf(w *policy.World) policyStates {
	s := policyStates{Policies: []policyState{}, Nodes: map[string]string{}}
	for _, n := range w.Nodes {
		if n.Problem != "" {
			s.Nodes[n.Name] = n.Problem
		}
	}
	for _, x := range w.Selections() {
		state := policyState{x.Policy, len(x.Endpoints), []string{}, x.Problems}
		for _, n := range x.Nodes {
			if s.Nodes[n] != "" {
				state.NotInForce = append(state.NotInForce, n)
			}
		}
		s.Policies = append(s.Policies, state)
	}
	return s
}

func (a *app) printStates(s policyStates) error {
	if a.structured() {
		return a.printData(s)
	}
	t := table{{"POLICY", "PODS", "INVALID PARTS", "NOT IN FORCE ON"}}
	for _, p := range s.Policies {
		nodes := strings.Join(p.NotInForce[:min(len(p.NotInForce), 5)], ", ")
		if more := len(p.NotInForce) - 5; more > 0 {
			nodes += fmt.Sprintf(" and %d more", more)
		}
		t = append(t, []string{p.Policy, strconv.Itoa(p.Endpoints), strconv.Itoa(len(p.Invalid)), nodes})
	}
	if err := t.print(a.stdout); err != nil {
		return err
	}
	for _, n := range sortedKeys(s.Nodes) {
		fmt.Fprintf(a.stdout, "node %s: %s\n", n, s.Nodes[n])
	}
	return nil
}
