package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/install/cluster"
)

const kubernetesInstallLong = `Install makes Fairlead the pod network of a cluster, or upgrades it. It finds the cluster's pod
ranges: kubeadm's, or the --cluster-cidr of kube-controller-manager, or the podCIDRs of the Nodes. It
applies the objects of "fairlead kubernetes manifest", waits until all nodes are Ready, and then checks
from inside every node that pods reach each other, the nodes, Services and the cluster's DNS.

Before the first change, it verifies the version of Kubernetes, your permissions, the ranges, and that
the cluster has no other pod network.

With --from flannel, it takes the network, the backend (vxlan or host-gw) and the list of pods from
flannel, whose store is the Kubernetes API, and moves one node after the other from flanneld to the
agent. Pods keep their network and lose no packet. --node limits it to the named nodes. After
an interruption, type the same command again. Install changes flannel's DaemonSet so that it has no pod
on a node with the label fairlead.io/pod-network=fairlead. See docs/flannel.md.

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

// installFlags are the flags of kubernetes install.
type installFlags struct {
	kubernetesFlags
	force, noCheck bool
	from           string
	nodes          []string
}

func (a *app) kubernetesInstall() *cobra.Command {
	f := &installFlags{}
	c := &cobra.Command{
		Use: "install", Short: "install or upgrade Fairlead as the pod network", Long: kubernetesInstallLong,
		Example: "  fairlead kubernetes install --dry-run\n  fairlead kubernetes install\n  fairlead kubernetes install --pod-cidr 10.0.0.0/16 --pod-cidr fd00:10::/56\n" +
			"  fairlead kubernetes install --set 'network.backends=[{type: wireguard}]' --context prod\n" +
			"  fairlead kubernetes install --from flannel --node worker-1",
		Args: want(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := f.check(c); err != nil {
				return err
			}
			return a.installCluster(c.Context(), f)
		},
	}
	f.addAccess(c)
	f.addNamespace(c)
	f.addValues(c)
	f.addTimeout(c, "the nodes, and then for the pods of the check")
	c.Flags().StringSliceVar(&f.podCIDRs, "pod-cidr", nil, "`RANGE` of the cluster's pods, for IPv6, too. May be repeated (default: find it).")
	c.Flags().BoolVar(&f.force, "force", false, "Install next to another pod network.")
	c.Flags().BoolVar(&f.noCheck, "no-check", false, "Do not check from inside the nodes.")
	c.Flags().StringVar(&f.from, "from", "", "`PRODUCT` to switch from, node by node: flannel.")
	c.Flags().StringSliceVar(&f.nodes, "node", nil, "`NAME` of a node to switch. May be repeated (default: all).")
	dryRunFlag(c, &f.dry)
	return c
}

func (a *app) installCluster(ctx context.Context, f *installFlags) error {
	o, err := f.options()
	if err != nil {
		return err
	}
	client, err := a.connect(&f.kubernetesFlags)
	if err != nil {
		return err
	}
	p, err := client.Plan(ctx, o)
	if err == nil {
		err = f.checkNodes(p)
	}
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
		a.line("All %d objects are in place.", len(out.Changes))
	}
	if f.dry {
		a.printSwitch(p, f)
		return a.finishInstall(&out, "Nothing was changed.")
	}
	if err := a.rollOut(ctx, client, p, f); err != nil {
		return err
	}
	if f.noCheck {
		return a.finishInstall(&out, "All nodes with an agent are ready.")
	}
	if out.Check, err = client.Check(ctx, a.checkOptions(&f.kubernetesFlags)); err != nil {
		return fmt.Errorf("all nodes are ready, but the check failed: %w", err)
	}
	return a.finishInstall(&out, "")
}

// options returns what to install.
func (f *installFlags) options() (o cluster.Options, err error) {
	o = cluster.Options{Force: f.force, Flannel: f.from != ""}
	if o.Manifest, err = f.manifest(); err != nil {
		return o, err
	}
	if o.PodCIDRs, err = f.ranges(); err != nil {
		return o, err
	}
	help := "Type: fairlead kubernetes install --help"
	network, _ := o.Manifest.Values["network"].(map[string]any)
	conf, _ := o.Manifest.Values["cni"].(map[string]any)
	switch {
	case network["subnets"] != nil && len(o.PodCIDRs) > 0:
		return o, &usageError{"--pod-cidr and the value network.subnets exclude each other", "Give one of them."}
	case f.from != "" && f.from != "flannel":
		return o, &usageError{fmt.Sprintf("--from %s: the only product to switch from is flannel", f.from), help}
	case f.from == "" && len(f.nodes) > 0:
		return o, &usageError{"--node needs --from", help}
	case f.from != "" && (len(network) > 0 || len(o.PodCIDRs) > 0 || conf["list"] != nil || o.Manifest.Values["flannel"] != nil):
		return o, &usageError{"--from takes the values network, cni.list and flannel from flannel", "Leave out --pod-cidr and these values."}
	}
	return o, nil
}

// checkNodes reports a node to switch that flannel does not manage.
func (f *installFlags) checkNodes(p *cluster.Plan) error {
	for _, n := range f.nodes {
		if !slices.Contains(p.Flannel.Nodes, n) {
			return &usageError{fmt.Sprintf("--node %s: flannel manages no such node", n), "There are: " + join(p.Flannel.Nodes)}
		}
	}
	return nil
}

// rollOut switches nodes, or waits for all.
func (a *app) rollOut(ctx context.Context, client *cluster.Client, p *cluster.Plan, f *installFlags) error {
	progress := func(s cluster.Progress) { a.line("node %s: %s", s.Node, s.State) }
	if p.Flannel == nil {
		if err := client.Wait(ctx, f.namespace, f.timeout, progress); err != nil {
			return err
		}
		return client.EndSwitch(ctx)
	}
	err := client.Switch(ctx, p.Flannel, cluster.SwitchOptions{Namespace: f.namespace, Nodes: f.nodes, Timeout: f.timeout, Progress: progress})
	if err == nil {
		a.printSwitch(p, f)
	}
	return err
}

// printSwitch prints how a switch from flannel goes on.
func (a *app) printSwitch(p *cluster.Plan, f *installFlags) {
	if p.Flannel == nil {
		return
	}
	nodes := p.Flannel.Nodes
	if len(f.nodes) > 0 {
		nodes = f.nodes
	}
	a.line("%s from flannel to Fairlead: %s", would(f.dry, "switch", "switched"), join(nodes))
	if len(nodes) < len(p.Flannel.Nodes) {
		a.line("To switch the other nodes, type: fairlead kubernetes install --from flannel")
		return
	}
	namespace, name, _ := strings.Cut(p.Flannel.DaemonSet, "/")
	a.line("To go back, type: fairlead kubernetes uninstall")
	a.line("To complete the switch, type: kubectl -n %s delete daemonset %s, and then: fairlead kubernetes install", namespace, name)
}

// line prints a line for a person.
func (a *app) line(format string, args ...any) {
	if !a.structured() {
		fmt.Fprintln(a.stdout, printable(fmt.Sprintf(format, args...)))
	}
}

func (a *app) printPlan(out *installedCluster, p *cluster.Plan) {
	a.line("Kubernetes %s at %s", p.Version, out.Server)
	if p.Flannel != nil {
		a.line("switch from %s, backend %s: nodes %s", p.Others[0], p.Flannel.Backend, join(p.Flannel.Nodes))
	}
	if p.Kept {
		a.line("The cluster was switched from flannel: its list of pods and the names of its links stay.")
	}
	for _, o := range p.Others {
		if p.Flannel != nil {
			break
		}
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
