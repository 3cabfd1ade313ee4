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
	"github.com/fairlead/fairlead/gc"
	"github.com/fairlead/fairlead/internal/netnspath"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/libcni"
)

const gcLong = `Gc removes what the attachments of a network left behind: attachments whose namespace is
gone, attachments whose add was interrupted, and objects that no attachment owns. It keeps
attachments whose namespace exists. With --keep it keeps exactly the named ones, and with
--keep-none it keeps none, as cnitool does. NETNS has no effect: cnitool requires one.

With --all it does so for every network, even without a configuration. It is for hosts whose
runtime never calls GC; contrib/systemd has a timer. It removes:

  - an attachment with a record, if its namespace is gone, or if its add was interrupted; an
    attachment stays if only the namespace's path is gone
  - the reservation of an add without a record, if its process is gone
  - an attachment that only the cache of results has, if its namespace is gone
  - objects with an owner tag (links, nftables elements, rules in other chains), if the owner has
    neither a record nor a cached result nor a link into a namespace in use
  - the rules of firewall's ingressPolicy for a bridge that does not exist
  - an address of host-local, if its owner has neither a record nor a cached result, no namespace
    has the address, and it was assigned more than ten minutes ago
  - an unreadable file in the cache of results that is older than ten minutes
  - a damaged record of an attachment that has neither a cached result nor a link into a namespace
    in use

It never removes an attachment that is being added. Run it where all processes of the host are visible (not in
a container without hostPID). Exit code 1: something could not be removed; the rest was.`

func (a *app) gcCommand() *cobra.Command {
	g := &gcRun{}
	c := a.operation(&cobra.Command{
		Use: "gc NETWORK [NETNS] | --all", Short: "remove what attachments left behind", Long: gcLong,
		Example: `  fairlead gc my-network
  fairlead gc my-network --keep web/net1 # and remove all others
  fairlead gc my-network --keep-none     # remove all attachments
  fairlead gc --all --dry-run            # show what would be removed in all networks
  fairlead gc --all
  systemctl enable --now fairlead-gc.timer`,
	}, g.one)
	c.Flags().StringSliceVar(&g.keep, "keep", nil, "Keep this attachment, CONTAINER/IFNAME, and no others except those of further --keep flags.")
	c.Flags().BoolVar(&g.none, "keep-none", false, "Keep no attachment.")
	c.Flags().BoolVar(&g.all, "all", false, "Remove the attachments of all networks whose namespace is gone.")
	dryRunFlag(c, &g.dry)
	optionalNetns(c)
	one := c.RunE
	c.Args = func(c *cobra.Command, args []string) error {
		if g.all {
			return want(0, 0)(c, args)
		}
		return want(1, 2)(c, args)
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		switch {
		case g.all && (g.none || len(g.keep) > 0):
			return &usageError{"--keep and --keep-none are for one network, and --all is for all networks", "Type: fairlead gc --help"}
		case g.all:
			return a.collectAll(c.Context(), g.dry)
		}
		return one(c, args)
	}
	return c
}

// gcRun is one run of gc.
type gcRun struct {
	keep           []string
	none, all, dry bool
}

// one collects in one network.
func (g *gcRun) one(s *session, ctx context.Context) error {
	began := time.Now()
	if g.none && len(g.keep) > 0 {
		return &usageError{"--keep and --keep-none contradict each other", "Type: fairlead gc --help"}
	}
	valid, err := parseKeep(g.keep)
	if err != nil {
		return err
	}
	living, dead, err := gc.Attachments(s.gcOptions(g.dry), s.list.Name)
	if err != nil {
		return err
	}
	if valid, err = s.resolveKeep(valid, append(slices.Clone(living), dead...)); err != nil {
		return err
	}
	if len(g.keep) == 0 && !g.none {
		valid = living
	}
	if s.list.DisableGC {
		return s.done("gc", "nothing was done: the network's configuration has disableGC. To remove what is gone, type: fairlead gc --all", began)
	}
	if g.dry {
		return s.previewGC(append(living, dead...), valid)
	}
	if err := s.cni.GCNetworkList(ctx, s.list, &libcni.GCArgs{ValidAttachments: valid, Listed: began, Lock: s.lockStale}); err != nil {
		return err
	}
	return s.done("gc", fmt.Sprintf("kept %s and removed the rest", count(len(valid), "attachment")), began)
}

// lockStale waits for the commands of an attachment that gc found stale.
func (s *session) lockStale(ctx context.Context, at cni.Attachment) (unlock func(), err error) {
	return s.records().LockList(ctx, kernel.Owner{Network: s.list.Name, ContainerID: at.ContainerID, IfName: at.IfName})
}

// previewGC prints the attachments of a network that gc would remove.
func (s *session) previewGC(all, valid []cni.Attachment) error {
	remove := slices.DeleteFunc(all, func(at cni.Attachment) bool { return slices.Contains(valid, at) })
	netns := map[string]string{}
	records, _ := s.records().List(s.list.Name) // for the names only
	for _, r := range records {
		netns[r.ContainerID] = r.Netns
	}
	var b strings.Builder
	for _, at := range remove {
		fmt.Fprintf(&b, "would remove %s %s %s\n", s.list.Name, shownName(at.ContainerID, netns[at.ContainerID]), at.IfName)
	}
	fmt.Fprintf(&b, "Would keep %s, and remove all objects that no kept attachment owns.\n", count(len(valid), "attachment"))
	return s.printDataOr(map[string]any{"keep": len(valid), "remove": append([]cni.Attachment{}, remove...), "dryRun": true}, b.String())
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

// resolveKeep returns the attachments that words name: by the container's ID, by its beginning, or by the name of the
// namespace of an attachment by "fairlead add". A word that names none would let gc remove what the user wants to keep.
func (s *session) resolveKeep(words, all []cni.Attachment) (valid []cni.Attachment, err error) {
	for _, w := range words {
		of := func(is func(id string) bool) (list []cni.Attachment) {
			for _, at := range all {
				if at.IfName == w.IfName && is(at.ContainerID) && !slices.Contains(list, at) {
					list = append(list, at)
				}
			}
			return list
		}
		named := ""
		if path, err := netnspath.Resolve(w.ContainerID); err == nil {
			named = containerID(path)
		}
		list := of(func(id string) bool { return id == w.ContainerID || id == named })
		if len(list) == 0 {
			list = of(func(id string) bool { return strings.HasPrefix(id, w.ContainerID) })
		}
		if len(list) != 1 {
			what := "has no such attachment"
			if len(list) > 1 {
				what = fmt.Sprintf("has %d such attachments: name more of the container's ID", len(list))
			}
			return nil, &usageError{fmt.Sprintf("--keep %s/%s: network %s %s", w.ContainerID, w.IfName, s.list.Name, what), "Type: fairlead list"}
		}
		valid = append(valid, list...)
	}
	return valid, nil
}

func (a *app) gcOptions(dry bool) gc.Options {
	return gc.Options{
		Runtime: a.runtime(a.pluginPath()), StateDir: a.getenv(attach.RootVariable), ConfDir: a.confDir(), LibDir: a.libDir(),
		DryRun: dry, Progress: a.counter("gc"),
	}
}

func (a *app) collectAll(ctx context.Context, dry bool) error {
	r, err := gc.Collect(ctx, a.gcOptions(dry))
	if err != nil {
		return err
	}
	if a.structured() {
		err = a.printData(r)
	} else {
		a.printCollected(r)
	}
	if err == nil && len(r.Errors) > 0 {
		return silentError{exitFailed}
	}
	return err
}

func (a *app) printCollected(r *gc.Report) {
	verb := would(r.DryRun, "remove", "removed")
	for _, g := range r.Attachments {
		fmt.Fprintf(a.stdout, "%s %s %s %s: %s\n", verb, g.Network, shownName(g.Container, g.Netns), g.IfName, g.Reason)
	}
	for _, tag := range r.Leftovers {
		fmt.Fprintf(a.stdout, "%s objects with the owner tag %q: there is no such attachment\n", verb, tag)
	}
	for _, bridge := range r.Bridges {
		fmt.Fprintf(a.stdout, "%s the rules of bridge %s: there is no such bridge\n", verb, bridge)
	}
	for _, x := range r.Addresses {
		fmt.Fprintf(a.stdout, "%s address %s of network %s: its owner %q has no attachment\n", verb, x.Address, x.Network, strings.TrimSpace(x.Container+" "+x.IfName))
	}
	for _, x := range r.Results {
		fmt.Fprintf(a.stdout, "%s %s: it cannot be read: %s\n", verb, x.File, x.Reason)
	}
	for _, s := range r.Skipped {
		fmt.Fprintln(a.stdout, "skipped: "+s)
	}
	for _, e := range r.Errors {
		fmt.Fprintln(a.stderr, "fairlead: gc: "+e)
	}
	switch {
	case len(r.Errors) > 0:
		fmt.Fprintf(a.stdout, "Not everything was removed. Failures: %d. Attachments that exist: %d.\n", len(r.Errors), r.Kept)
	case len(r.Attachments)+len(r.Leftovers)+len(r.Bridges)+len(r.Addresses)+len(r.Results) == 0:
		fmt.Fprintf(a.stdout, "Nothing is left behind. Attachments that exist: %d.\n", r.Kept)
	}
}
