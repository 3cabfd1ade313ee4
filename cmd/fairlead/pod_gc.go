package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/gc"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/podnet"
)

const podGCLong = `Gc tears down the pods whose network namespace is gone or whose setup was interrupted. Then it
runs GC of every configured network, which removes the attachments of containers that no longer exist.
With --keep, it keeps exactly the named pods, and removes all other attachments of the networks. It never
removes a pod that is being set up.`

func (a *app) podGC(f *podFlags) *cobra.Command {
	var keep []string
	dry := false
	c := &cobra.Command{
		Use: "gc", Short: "remove what pods left behind", Long: podGCLong,
		Example: "  fairlead pod gc --dry-run\n  fairlead pod gc\n  fairlead pod gc --keep 4f1c9a --keep 7b20d3",
		Args:    want(0, 0),
	}
	c.Flags().StringSliceVar(&keep, "keep", nil, "Keep the pod with this ID, and no others except those of further --keep flags.")
	dryRunFlag(c, &dry)
	_ = c.RegisterFlagCompletionFunc("keep", a.completePods)
	a.withManager(c, f, func(ctx context.Context, m *podnet.Manager, _ []string) error {
		var unreadable error // pods with a damaged note are kept
		valid := func() ([]string, error) {
			pods, err := m.List()
			if len(keep) > 0 {
				return keep, errors.Join(err, checkKept(keep, pods))
			}
			unreadable = err
			return a.existingContainers(pods)
		}
		if !dry {
			before, _ := m.List() // GC reports a note that cannot be read
			err := m.GCWith(ctx, valid)
			if err == nil && a.structured() {
				err = a.printCollectedPods(m, before)
			}
			return errors.Join(err, unreadable)
		}
		ids, err := valid()
		if err != nil {
			return err
		}
		return a.previewPodGC(m, ids)
	})
	c.GroupID = "node"
	return c
}

// checkKept returns an error for an ID that no pod has: gc would remove what the user wants to keep.
func checkKept(keep []string, pods []*podnet.PodStatus) error {
	for _, id := range keep {
		if !slices.ContainsFunc(pods, func(p *podnet.PodStatus) bool { return p.ID == id }) {
			return &usageError{fmt.Sprintf("--keep %s: there is no pod with this ID", id), "Type: fairlead pod list"}
		}
	}
	return nil
}

// printCollectedPods prints which of the pods from before a gc it has torn down.
func (a *app) printCollectedPods(m *podnet.Manager, before []*podnet.PodStatus) error {
	now, _ := m.List()
	keep, remove := []string{}, []string{}
	for _, p := range now {
		keep = append(keep, p.ID)
	}
	for _, p := range before {
		if !slices.Contains(keep, p.ID) {
			remove = append(remove, p.ID)
		}
	}
	return a.printData(map[string]any{"keep": keep, "remove": remove, "dryRun": false})
}

// previewPodGC prints the pods that gc would tear down.
func (a *app) previewPodGC(m *podnet.Manager, keep []string) error {
	pods, unreadable := m.List()
	remove, text := []string{}, ""
	for _, p := range pods {
		if p.State != podnet.StateBusy && !slices.Contains(keep, p.ID) {
			remove = append(remove, p.ID)
			text += "would tear down " + p.ID + ": " + p.State + "\n"
		}
	}
	text += fmt.Sprintf("Would keep %s, and remove all objects that no kept container owns.\n", count(len(keep), "container"))
	err := a.printDataOr(map[string]any{"keep": append([]string{}, keep...), "remove": remove, "dryRun": true}, text)
	return errors.Join(err, unreadable)
}

// existingContainers returns the containers that gc keeps if nothing else is asked for: those whose namespace exists,
// by the state of pods, the records and the cache, and pods with a note that cannot be read.
func (a *app) existingContainers(pods []*podnet.PodStatus) ([]string, error) {
	var dead, known []string
	for _, p := range pods {
		known = append(known, p.ID)
		if p.State != podnet.StateReady && p.State != podnet.StateBusy {
			dead = append(dead, p.ID)
		}
	}
	ids, err := gc.ExistingContainers(a.gcOptions(false), dead)
	for _, id := range append(known, a.podIDs()...) {
		if !slices.Contains(dead, id) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), err
}

// removeLeftover removes everything of an attachment that has no configuration.
func (a *app) removeLeftover(ctx context.Context, left podnet.Leftover) error {
	return gc.RemoveAttachment(ctx, a.gcOptions(false), kernel.Owner{Network: left.Network, ContainerID: left.ContainerID, IfName: left.IfName}, left.Netns)
}
