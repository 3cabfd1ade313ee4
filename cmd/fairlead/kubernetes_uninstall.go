package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/gc"
	"github.com/fairlead/fairlead/install/cluster"
	"github.com/fairlead/fairlead/install/cluster/node"
)

const kubernetesUninstallLong = `Uninstall removes Fairlead from a cluster. Pods keep running, but those of different nodes no
longer reach each other: install another pod network next.

On each node it removes the routes, tunnels and rules of the agent, removes the network configuration
list, and restores the plugins that were replaced. A runtime needs a list and its plugins to delete
a pod. So a node with pods keeps the plugins that they use, and keeps the list as
` + node.Retired + `, after all others. New pods cannot use it, and the node is not
Ready until it has another list. After the pods are deleted, type the same command again: it removes
the rest.

Then it deletes the objects that install created. The definitions stay with their objects
(networks, blocks, addresses), and so does the namespace, unless you type --purge.

If the cluster was switched from flannel and flannel's DaemonSet still exists, uninstall first moves
one node after the other back to flanneld. Pods keep their network and lose no packet. Routes,
tunnels and the list of pods stay, because flanneld uses them. With --node, only the given nodes go
back, and the objects stay.

If an earlier uninstall has deleted the DaemonSet, the values of its image come from --set and --values.
Exit code 4: a node could not be cleaned up.`

func (a *app) kubernetesUninstall() *cobra.Command {
	f, purge, nodes := &kubernetesFlags{}, false, []string(nil)
	c := &cobra.Command{
		Use: "uninstall", Short: "remove Fairlead from the cluster and its nodes", Long: kubernetesUninstallLong,
		Example: "  fairlead kubernetes uninstall --dry-run\n  fairlead kubernetes uninstall\n  fairlead kubernetes uninstall --purge",
		Args:    want(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := f.check(c); err != nil {
				return err
			}
			return a.uninstallCluster(c.Context(), f, purge, nodes)
		},
	}
	f.addAccess(c)
	f.addNamespace(c)
	f.addValues(c)
	f.addTimeout(c, "the agents to end, and then for the work on the nodes")
	c.Flags().BoolVar(&purge, "purge", false, "Also delete the definitions with all networks, blocks and addresses, and the namespace.")
	c.Flags().StringSliceVar(&nodes, "node", nil, "Only move the node `NAME` back to flannel, and keep the objects. May be repeated.")
	dryRunFlag(c, &f.dry)
	return c
}

func (a *app) uninstallCluster(ctx context.Context, f *kubernetesFlags, purge bool, nodes []string) error {
	manifest, err := f.manifest()
	if err != nil {
		return err
	}
	client, err := a.connect(f)
	if err != nil {
		return err
	}
	out, err := client.Uninstall(ctx, cluster.UninstallOptions{Manifest: manifest, Purge: purge, Nodes: nodes, DryRun: f.dry, Timeout: f.timeout, Progress: a.steps()})
	if out == nil {
		return err
	}
	return errors.Join(err, a.printUninstalled(out))
}

func (a *app) printUninstalled(out *cluster.Uninstalled) error {
	failed := false
	for _, n := range out.Nodes {
		failed = failed || len(n.Errors) > 0
	}
	if a.structured() {
		if err := a.printData(out); err != nil {
			return err
		}
	} else {
		a.uninstalledText(out)
	}
	if failed {
		return silentError{exitWrong}
	}
	return nil
}

func (a *app) uninstalledText(out *cluster.Uninstalled) {
	pods := 0
	for _, n := range out.Back {
		a.line("%s node %s back to flannel", would(out.DryRun, "switch", "switched"), n)
	}
	for _, n := range out.Nodes {
		pods += len(n.Attachments)
		if out.DryRun {
			a.line("would remove Fairlead from node %s", n.Node)
			continue
		}
		a.line("node %s: removed %d files and %d kernel objects, restored %d files", n.Node, len(n.Removed), n.Objects, len(n.Restored))
		if len(n.Attachments) > 0 {
			a.line("node %s: kept %d files, which its containers (%d) need for their deletion", n.Node, len(n.Kept), len(n.Attachments))
		}
		for _, e := range n.Errors {
			a.line("node %s: %s", n.Node, e)
		}
	}
	for _, o := range out.Removed {
		a.line("%s %s", would(out.DryRun, "delete", "deleted"), o)
	}
	for _, k := range out.Kept {
		a.line("%s %s", would(out.DryRun, "keep", "kept"), k)
	}
	switch {
	case out.DryRun:
		a.line("Nothing was changed.")
	case pods > 0:
		a.line("After these containers are deleted, type the same command again to remove the rest.")
	}
}

// cleanPatience is the time for which a node waits until its agent has ended.
const cleanPatience = time.Minute

// kubernetesClean is the command that uninstall runs on each node.
func (a *app) kubernetesClean() *cobra.Command {
	list, binDir, stay, handOver, patience := "", "", false, false, time.Duration(0)
	c := &cobra.Command{
		Use: "clean", Hidden: true, Args: want(0, 0), Short: "remove Fairlead from this node; fairlead kubernetes uninstall starts this",
		RunE: func(c *cobra.Command, _ []string) error {
			if !filepath.IsAbs(list) {
				return &usageError{fmt.Sprintf("--list %q: want an absolute path", list), "Type: fairlead kubernetes uninstall --help"}
			}
			r := node.Remove(c.Context(), node.Options{
				Node: a.getenv(cluster.NodeVariable), List: list, BinDir: binDir, Lib: a.libDir(), Run: a.runDir(), Patience: patience, HandOver: handOver,
				Collect: func(ctx context.Context) (*gc.Report, error) { return gc.Collect(ctx, a.gcOptions(false)) },
			})
			if !stay {
				return a.printData(r)
			}
			return a.reportAndWait(c.Context(), r)
		},
	}
	c.Flags().StringVar(&list, "list", "", "Path of the network configuration list.")
	c.Flags().StringVar(&binDir, "bin-dir", cluster.BinDir, "Directory of the plugins.")
	durationVar(c.Flags(), &patience, "patience", cleanPatience, "Longest wait until the agent has ended.")
	c.Flags().BoolVar(&handOver, "hand-over", false, "Keep routes and tunnels, which flanneld uses.")
	c.Flags().BoolVar(&stay, "stay", false, "Print one line, and run until a signal (for a DaemonSet).")
	return c
}
