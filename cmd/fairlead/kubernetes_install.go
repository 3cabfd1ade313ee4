package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/install/cluster"
)

const kubernetesInstallLong = `Install makes Fairlead the pod network of a cluster, or upgrades it. It finds the cluster's pod
ranges: kubeadm's, or the --cluster-cidr of kube-controller-manager, or the podCIDRs of the Nodes. It
applies the objects of "fairlead kubernetes manifest", waits until all nodes are Ready, and then checks
from inside every node that pods reach each other, the nodes, Services and the cluster's DNS.

Nothing is changed before everything is verified: the version of Kubernetes, your permissions,
the ranges, and that the cluster has no other pod network.

A second install is an upgrade: it prints what changed. Give the same --set and --values again,
because a value that is not given gets its default. The object Network/default stays as it is.

Exit code 4: a check failed.`

// installedCluster is the output of kubernetes install.
type installedCluster struct {
	Server     string           `json:"server"`
	Kubernetes string           `json:"kubernetes"`
	Upgrade    bool             `json:"upgrade"`
	Subnets    []string         `json:"subnets,omitempty"` // that were found
	Changes    []cluster.Change `json:"changes"`
	Check      *cluster.Check   `json:"check,omitempty"`
	DryRun     bool             `json:"dryRun"`
}

func (a *app) kubernetesInstall() *cobra.Command {
	f, force, noCheck := &kubernetesFlags{}, false, false
	c := &cobra.Command{
		Use: "install", Short: "install or upgrade Fairlead as the pod network", Long: kubernetesInstallLong,
		Example: "  fairlead kubernetes install --dry-run\n  fairlead kubernetes install\n  fairlead kubernetes install --pod-cidr 10.0.0.0/16 --pod-cidr fd00:10::/56\n" +
			"  fairlead kubernetes install --set 'network.backends=[{type: wireguard}]' --context prod",
		Args: want(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := f.check(c); err != nil {
				return err
			}
			return a.installCluster(c.Context(), f, force, noCheck)
		},
	}
	f.addAccess(c)
	f.addNamespace(c)
	f.addValues(c)
	f.addTimeout(c, "the nodes, and then for the pods of the check")
	c.Flags().StringSliceVar(&f.podCIDRs, "pod-cidr", nil, "`RANGE` of the cluster's pods, for IPv6, too. May be repeated (default: find it).")
	c.Flags().BoolVar(&force, "force", false, "Install next to another pod network.")
	c.Flags().BoolVar(&noCheck, "no-check", false, "Do not check from inside the nodes.")
	dryRunFlag(c, &f.dry)
	return c
}

func (a *app) installCluster(ctx context.Context, f *kubernetesFlags, force, noCheck bool) error {
	o := cluster.Options{Force: force}
	var err error
	if o.Manifest, err = f.manifest(); err != nil {
		return err
	}
	if o.PodCIDRs, err = f.ranges(); err != nil {
		return err
	}
	if network, _ := o.Manifest.Values["network"].(map[string]any); network["subnets"] != nil && len(o.PodCIDRs) > 0 {
		return &usageError{"--pod-cidr and the value network.subnets exclude each other", "Give one of them."}
	}
	client, err := a.connect(f)
	if err != nil {
		return err
	}
	p, err := client.Plan(ctx, o)
	if err != nil {
		return err
	}
	out := installedCluster{Server: client.Server(), Kubernetes: p.Version, Upgrade: p.Upgrade, Changes: []cluster.Change{}, DryRun: f.dry}
	a.printPlan(&out, p)
	err = client.Apply(ctx, p.Objects, f.dry, func(x cluster.Change) {
		out.Changes = append(out.Changes, x)
		a.printChange(x, f.dry)
	})
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(out.Changes, func(x cluster.Change) bool { return x.Action != cluster.Unchanged }) {
		a.line("All of %d objects are in place.", len(out.Changes))
	}
	if f.dry {
		return a.finishInstall(&out, "Nothing was changed.")
	}
	err = client.Wait(ctx, f.namespace, f.timeout, func(s cluster.Progress) { a.line("node %s: %s", s.Node, s.State) })
	if err != nil || noCheck {
		return orElse(err, func() error { return a.finishInstall(&out, "All nodes are ready.") })
	}
	if out.Check, err = client.Check(ctx, a.checkOptions(f)); err != nil {
		return fmt.Errorf("all nodes are ready, but the check failed: %w", err)
	}
	return a.finishInstall(&out, "")
}

// orElse returns an error, or else the result of a function.
func orElse(err error, f func() error) error {
	if err != nil {
		return err
	}
	return f()
}

// line prints a line for a person.
func (a *app) line(format string, args ...any) {
	if !a.structured() {
		fmt.Fprintln(a.stdout, printable(fmt.Sprintf(format, args...)))
	}
}

func (a *app) printPlan(out *installedCluster, p *cluster.Plan) {
	a.line("Kubernetes %s at %s", p.Version, out.Server)
	for _, o := range p.Others {
		a.line("Warning: another pod network is installed: %s", o)
	}
	for _, w := range p.Warnings {
		a.line("Warning: %s", w)
	}
	for _, r := range p.Ranges.CIDRs {
		out.Subnets = append(out.Subnets, r.String())
	}
	if len(out.Subnets) > 0 {
		a.line("pod network %s (assign: %s), from %s", join(out.Subnets), p.Ranges.Assign, p.Ranges.From)
	}
}

func (a *app) printChange(x cluster.Change, dry bool) {
	if x.Action == cluster.Unchanged {
		return
	}
	infinitive := map[string]string{cluster.Created: "create", cluster.Changed: "change"}[x.Action]
	a.line("%s %s %s", would(dry, infinitive, x.Action), x.Kind, x.Name)
	for _, l := range x.Fields {
		a.line("    %s", l)
	}
}

// finishInstall prints the end of the output: the result of the check, or a text.
func (a *app) finishInstall(out *installedCluster, text string) error {
	if a.structured() {
		if err := a.printData(out); err != nil {
			return err
		}
	} else if out.Check != nil {
		if err := a.printCheck(out.Check); err != nil {
			return err
		}
	} else {
		a.line("%s", text)
	}
	if out.Check != nil && !out.Check.OK {
		return silentError{exitWrong}
	}
	return nil
}
