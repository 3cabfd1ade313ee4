package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/install/cluster"
)

// clusterStatus is the output of kubernetes status.
type clusterStatus struct {
	*cluster.Status
	Check *cluster.Check `json:"check,omitempty"`
}

func (a *app) kubernetesStatus() *cobra.Command {
	f, check := &kubernetesFlags{}, false
	c := &cobra.Command{
		Use: "status", Short: "show the agents, the nodes, and what is wrong",
		Long: "Status shows every node of the cluster with its agent and its pod ranges, and then what is\n" +
			"wrong: reasons of pods that do not run, the end of their logs, conditions of nodes. With --check\n" +
			"it also starts pods on each node, which connect to those of the other nodes, to the nodes, to the\n" +
			"API server's Service and to the cluster's DNS; it removes these pods afterwards. Exit code 4: an\n" +
			"agent or a node is not ready, or a check failed.",
		Example: "  fairlead kubernetes status\n  fairlead kubernetes status --check\n  fairlead kubernetes status -o json | jq .problems",
		Args:    want(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := f.check(c); err != nil {
				return err
			}
			return a.showCluster(c.Context(), f, check)
		},
	}
	f.addAccess(c)
	f.addNamespace(c)
	f.addTimeout(c, "the pods of the check")
	c.Flags().BoolVar(&check, "check", false, "Check from inside every node.")
	return c
}

func (a *app) showCluster(ctx context.Context, f *kubernetesFlags, check bool) error {
	client, err := a.connect(f)
	if err != nil {
		return err
	}
	if _, err := client.Version(ctx); err != nil {
		return err
	}
	s, err := client.Status(ctx, f.namespace)
	if err != nil {
		return err
	}
	out := clusterStatus{Status: s}
	if check {
		if out.Check, err = client.Check(ctx, a.checkOptions(f)); err != nil {
			return err
		}
	}
	if err := a.printCluster(&out); err != nil {
		return err
	}
	if !s.Ready || out.Check != nil && !out.Check.OK {
		return silentError{exitWrong}
	}
	return nil
}

func (a *app) printCluster(s *clusterStatus) error {
	if a.structured() {
		return a.printData(s)
	}
	t := table{{"NODE", "READY", "AGENT", "VERSION", "NETWORK UNAVAILABLE", "POD CIDRS", "BLOCKS", "ADDRESSES", "POD", "RESTARTS"}}
	for _, n := range s.Nodes {
		isReady := "no"
		if n.Ready {
			isReady = "yes"
		}
		t = append(t, []string{n.Name, isReady, n.State, n.Version, n.NetworkUnavailable, join(n.PodCIDRs), join(n.Blocks), join(n.Addresses), n.Pod, fmt.Sprint(n.Restarts)})
	}
	if len(s.Nodes) > 0 {
		if err := a.printTable(t, 7); err != nil {
			return err
		}
	}
	for _, p := range s.Problems {
		a.line("%s", p)
	}
	if s.Check == nil {
		return nil
	}
	a.line("")
	return a.printCheck(s.Check)
}
