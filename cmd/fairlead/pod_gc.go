package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/podnet"
)

const podGCLong = `Gc tears down the pods whose network namespace is gone or whose setup was cut off, and
has every network of the configuration remove what no living container owns. --keep
says instead exactly which containers live; whatever else there is on the networks
goes, whoever made it. What is being set up is never touched.`

func (a *app) podGC(f *podFlags) *cobra.Command {
	var keep []string
	c := &cobra.Command{
		Use: "gc", Short: "remove what pods left behind", Long: podGCLong,
		Example: "  fairlead pod gc\n  fairlead pod gc --keep 4f1c9a --keep 7b20d3",
		Args:    want(0, 0),
	}
	c.Flags().StringSliceVar(&keep, "keep", nil, "the ID of a pod that lives; may be repeated; no others but those named so")
	_ = c.RegisterFlagCompletionFunc("keep", a.completePods)
	a.podRun(c, f, func(ctx context.Context, m *podnet.Manager, _ []string) error {
		if len(keep) == 0 {
			var err error
			if keep, err = a.livingContainers(m); err != nil {
				return err
			}
		}
		return m.GC(ctx, keep)
	})
	c.GroupID = "node"
	return c
}

// livingContainers are those whose namespace is there, by everybody who knows of one.
func (a *app) livingContainers(m *podnet.Manager) (ids []string, err error) {
	pods, err := m.List()
	if err != nil {
		return nil, err
	}
	var dead []string
	for _, p := range pods {
		if p.State == podnet.StateReady || p.State == podnet.StateAtWork {
			ids = append(ids, p.ID)
		} else {
			dead = append(dead, p.ID)
		}
	}
	records, err := attach.Open(a.getenv(attach.RootVariable)).List("")
	if err != nil {
		return nil, err
	}
	for _, r := range records {
		if s := state(r); (s == stateOK || s == stateAdding) && !slices.Contains(dead, r.ContainerID) {
			ids = append(ids, r.ContainerID)
		}
	}
	cached, err := a.runtime(a.pluginPath()).GetCachedAttachments("")
	for _, c := range cached {
		if isNetns(c.NetNS) && !slices.Contains(dead, c.ContainerID) {
			ids = append(ids, c.ContainerID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), err
}

// removeLeft removes what is Fairlead's of an attachment that has no configuration.
func (a *app) removeLeft(ctx context.Context, left podnet.Left) error {
	c := &collector{app: a, dir: attach.Open(a.getenv(attach.RootVariable)), cni: a.runtime(a.pluginPath())}
	return c.byRecord(ctx, collectedAttachment{
		Network: left.Network, Container: left.ContainerID, IfName: left.IfName, alive: left.Netns, forced: true,
		owner: kernel.Owner{Network: left.Network, ContainerID: left.ContainerID, IfName: left.IfName},
	})
}

// eachPod does something for each pod, and goes on after an error.
func (a *app) eachPod(ids []string, words string, do func(id string) error) error {
	var errs []error
	for _, id := range ids {
		err := do(id)
		if err == nil {
			err = a.donePod(id, words)
		} else if len(ids) > 1 {
			err = fmt.Errorf("pod %s: %w", id, err)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (a *app) donePod(id, words string) error {
	if a.json {
		return a.printLine(map[string]string{"pod": id, "message": words})
	}
	a.say("pod %s: %s", id, words)
	return nil
}
