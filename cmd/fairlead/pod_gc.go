package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/gc"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/podnet"
)

const podGCLong = `Gc tears down the pods whose network namespace is gone or whose setup was interrupted. Then every
network of the configuration removes what no living container owns. With --keep, exactly the
named containers are alive, and everything else on the networks is removed. Gc never touches a pod that
is being set up.`

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
		valid := func() ([]string, error) {
			if len(keep) > 0 {
				return keep, nil
			}
			dead, err := deadPods(m)
			if err != nil {
				return nil, err
			}
			return a.existingContainers(m, dead)
		}
		if !dry {
			return m.GCWith(ctx, valid)
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

// previewPodGC prints the pods that gc would tear down.
func (a *app) previewPodGC(m *podnet.Manager, keep []string) error {
	pods, err := m.List()
	if err != nil {
		return err
	}
	remove, text := []string{}, ""
	for _, p := range pods {
		if p.State != podnet.StateBusy && !slices.Contains(keep, p.ID) {
			remove = append(remove, p.ID)
			text += "would tear down " + p.ID + ": " + p.State + "\n"
		}
	}
	text += fmt.Sprintf("Would keep %d containers. Objects that none of them owns would be removed, too.\n", len(keep))
	return a.printDataOr(map[string]any{"keep": append([]string{}, keep...), "remove": remove, "dryRun": true}, text)
}

// deadPods returns the pods that gc tears down if nothing else is asked for.
func deadPods(m *podnet.Manager) (ids []string, err error) {
	pods, err := m.List()
	for _, p := range pods {
		if p.State != podnet.StateReady && p.State != podnet.StateBusy {
			ids = append(ids, p.ID)
		}
	}
	return ids, err
}

// existingContainers returns the containers whose namespace exists, by the state of pods, the records and the cache.
func (a *app) existingContainers(m *podnet.Manager, dead []string) ([]string, error) {
	pods, err := m.List()
	if err != nil {
		return nil, err
	}
	ids, err := gc.ExistingContainers(a.gcOptions(false), dead)
	for _, p := range pods {
		if !slices.Contains(dead, p.ID) {
			ids = append(ids, p.ID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), err
}

// removeLeft removes everything of an attachment that has no configuration.
func (a *app) removeLeft(ctx context.Context, left podnet.Left) error {
	return gc.RemoveAttachment(ctx, a.gcOptions(false), kernel.Owner{Network: left.Network, ContainerID: left.ContainerID, IfName: left.IfName}, left.Netns)
}
