package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/install/cluster"
	clusterprobe "github.com/fairlead/fairlead/install/cluster/probe"
)

// checkSeconds is the time for which a pod of a check repeats what fails.
const checkSeconds = 30

// checkOptions returns the options of a check, which shows its progress to a person.
func (a *app) checkOptions(f *kubernetesFlags) cluster.CheckOptions {
	return cluster.CheckOptions{Namespace: f.namespace, Timeout: f.timeout, Seconds: checkSeconds, Progress: a.steps()}
}

// steps returns a function that says to a person what a command does, once for each text.
func (a *app) steps() func(string) {
	last := ""
	return func(text string) {
		if text != last {
			a.say("%s", text)
		}
		last = text
	}
}

func (a *app) printCheck(c *cluster.Check) error {
	t := table{{"NODE", "POD TO PODS", "POD TO HOSTS", "SERVICE", "DNS"}}
	for _, n := range c.Nodes {
		t = append(t, []string{n.Node, outcomeText(n.Pods), outcomeText(n.Hosts), outcomeText(n.Service), outcomeText(n.DNS)})
	}
	if err := t.print(a.stdout); err != nil {
		return err
	}
	for _, n := range c.Nodes {
		if n.Error != "" {
			a.line("node %s: %s", n.Node, n.Error)
		}
		for _, o := range []clusterprobe.Outcome{n.Pods, n.Hosts, n.Service, n.DNS} {
			for _, e := range o.Errors {
				a.line("node %s: %s", n.Node, e)
			}
			if more := o.Tried - o.OK - len(o.Errors); more > 0 && len(o.Errors) > 0 {
				a.line("node %s: %d more connections failed", n.Node, more)
			}
		}
	}
	for _, note := range c.Notes {
		a.line("%s", note)
	}
	if c.OK {
		a.line("All checks passed.")
	}
	return nil
}

// outcomeText returns "ok", "2 of 3 ok", or nothing if nothing was tried.
func outcomeText(o clusterprobe.Outcome) string {
	switch {
	case o.Tried == 0:
		return ""
	case o.OK == o.Tried:
		return "ok"
	}
	return fmt.Sprintf("%d of %d ok", o.OK, o.Tried)
}

// kubernetesProbe is the command that the pods of a check run.
func (a *app) kubernetesProbe() *cobra.Command {
	listen, targets := "", ""
	c := &cobra.Command{
		Use: "probe", Hidden: true, Args: want(0, 0), Short: "check the pod network from a pod; fairlead kubernetes status --check starts this",
		RunE: func(c *cobra.Command, _ []string) error {
			node := a.getenv(cluster.NodeVariable)
			if listen != "" {
				return clusterprobe.Listen(c.Context(), listen, node)
			}
			raw, err := os.ReadFile(targets)
			if err != nil {
				return err
			}
			t, err := clusterprobe.DecodeTargets(raw)
			if err != nil {
				return fmt.Errorf("%s: %w", targets, err)
			}
			return a.reportAndWait(c.Context(), clusterprobe.Run(c.Context(), node, t))
		},
	}
	c.Flags().StringVar(&listen, "listen", "", "Address to listen on.")
	c.Flags().StringVar(&targets, "targets", cluster.TargetsFile, "File with the targets.")
	return c
}

// reportAndWait prints a line of JSON and waits until the pod is deleted: a DaemonSet starts a pod that ends again.
func (a *app) reportAndWait(ctx context.Context, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(a.stdout, string(raw)); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}
