package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/libcni"
)

const gcLong = `Gc removes what a network's attachments left behind: those that add had made and
whose namespace is gone, those whose add was cut off, and what no attachment owns.
An attachment whose namespace is still there is kept; --keep says instead exactly
which are kept, --keep-none that none is (this is what cnitool does). NETNS is
accepted because cnitool wants one, and means nothing.

With --all it does so for every network, whether its configuration is still there or
not, from the records, the cache of results, the marks in the kernel and the
addresses that are held. It is for hosts whose runtime never calls gc: a timer for
systemd is in contrib/systemd. What is being added is never touched.`

func (a *app) gcCommand() *cobra.Command {
	var keep []string
	var none, all, dry bool
	c := a.operation(&cobra.Command{
		Use: "gc NETWORK [NETNS] | --all", Short: "remove what attachments left behind", Long: gcLong,
		Example: `  fairlead gc my-network
  fairlead gc my-network --keep 4f1c9a/eth0 --keep 7b20d3/eth0
  fairlead gc my-network --keep-none     # everything goes
  fairlead gc --all --dry-run            # what would go, of every network
  fairlead gc --all`,
	}, func(s *session, ctx context.Context) error { return s.gc(ctx, keep, none) })
	c.Flags().StringSliceVar(&keep, "keep", nil, "keep this attachment, CONTAINER/IFNAME, and no others but those named so")
	c.Flags().BoolVar(&none, "keep-none", false, "keep no attachment")
	c.Flags().BoolVar(&all, "all", false, "of every network, those whose namespace is gone")
	c.Flags().BoolVar(&dry, "dry-run", false, "with --all: say what would go, and change nothing")
	optionalNetns(c)
	one := c.RunE
	c.Args = func(c *cobra.Command, args []string) error {
		if all {
			return want(0, 0)(c, args)
		}
		return want(1, 2)(c, args)
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		switch {
		case all && (none || len(keep) > 0):
			return &usageError{"--all keeps what lives: --keep and --keep-none are for one network", "Type: fairlead gc --help"}
		case all:
			return a.collectAll(c.Context(), dry)
		case dry:
			return &usageError{"--dry-run goes with --all", "Type: fairlead gc --help"}
		}
		return one(c, args)
	}
	return c
}

func (s *session) gc(ctx context.Context, keep []string, none bool) error {
	began := time.Now()
	if none && len(keep) > 0 {
		return &usageError{"--keep and --keep-none contradict each other", "Type: fairlead gc --help"}
	}
	valid, err := parseKeep(keep)
	if err == nil && len(keep) == 0 && !none {
		valid, err = s.living()
	}
	if err != nil {
		return err
	}
	if err := s.cni.GCNetworkList(ctx, s.list, &libcni.GCArgs{ValidAttachments: valid}); err != nil {
		return err
	}
	return s.done("gc", fmt.Sprintf("kept %d attachments and removed what else there was", len(valid)), began)
}

func parseKeep(words []string) (valid []cni.Attachment, err error) {
	for _, w := range words {
		id, ifName, ok := strings.Cut(w, "/")
		if !ok || id == "" || ifName == "" {
			return nil, &usageError{fmt.Sprintf("--keep %s: want CONTAINER/IFNAME", w), "Type: fairlead list"}
		}
		valid = append(valid, cni.Attachment{ContainerID: id, IfName: ifName})
	}
	return valid, nil
}

// living are the network's attachments whose namespace is still there, by our
// records and by the cache, which other plugins' attachments have, too.
func (s *session) living() (valid []cni.Attachment, err error) {
	records, err := attach.Open(s.getenv(attach.RootVariable)).List(s.list.Name)
	if err != nil {
		return nil, err
	}
	dead := map[cni.Attachment]bool{}
	for _, r := range records {
		at := cni.Attachment{ContainerID: r.ContainerID, IfName: r.IfName}
		if s := state(r); s == stateGone || s == stateCut {
			dead[at] = true
		} else {
			valid = append(valid, at)
		}
	}
	cached, err := s.cni.GetCachedAttachments("")
	for _, c := range cached {
		at := cni.Attachment{ContainerID: c.ContainerID, IfName: c.IfName}
		if c.Network == s.list.Name && !dead[at] && !slices.Contains(valid, at) && isNetns(c.NetNS) {
			valid = append(valid, at)
		}
	}
	return valid, err
}
