package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/libcni"
	"github.com/fairlead/fairlead/plugin"
)

// collector removes what is left of attachments whose namespace is gone, of every
// network. It knows them from the records, from the cache of results, from the
// marks in the kernel and from the addresses that are held.
type collector struct {
	*app
	dir *attach.Dir
	cni *libcni.CNIConfig
	dry bool

	cached  []*libcni.NetworkAttachment
	spoiled []*libcni.CacheError // files of the cache that nobody can read
	used    map[string]bool      // marks of links whose other end somebody uses
	out     collected
}

// collected is what gc --all prints.
type collected struct {
	Attachments []collectedAttachment `json:"attachments"`
	Leftovers   []string              `json:"leftovers"` // marks without an attachment
	Addresses   []collectedAddress    `json:"addresses"`
	Results     []collectedResult     `json:"results"` // files of the cache that nobody can read
	Untouched   []string              `json:"skipped"`
	Errors      []string              `json:"errors"`
	Kept        int                   `json:"kept"`
	DryRun      bool                  `json:"dryRun"`
}

type collectedAttachment struct {
	Network   string `json:"network"`
	Container string `json:"container"`
	IfName    string `json:"ifname"`
	Netns     string `json:"netns"`
	Reason    string `json:"reason"`

	owner  kernel.Owner
	record bool
	alive  string // the namespace, of one that was cut off and has it still
	forced bool   // it goes though it stands: its pod is torn down
	cache  *libcni.NetworkAttachment
}

type collectedAddress struct {
	Network   string `json:"network"`
	Address   string `json:"address"`
	Container string `json:"container"`
	IfName    string `json:"ifname"`
}

func (a *app) collectAll(ctx context.Context, dry bool) error {
	c := &collector{app: a, dir: attach.Open(a.getenv(attach.RootVariable)), cni: a.runtime(a.pluginPath()), dry: dry}
	c.cni.Warn = c.warned
	c.out = collected{[]collectedAttachment{}, []string{}, []collectedAddress{}, []collectedResult{}, []string{}, []string{}, 0, dry}
	gone, err := c.gone()
	if err != nil {
		return err
	}
	for i, g := range gone {
		done := a.working("gc", i, len(gone))
		c.remove(ctx, g)
		done()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	c.marks()
	c.addresses(ctx)
	c.results()
	if !dry {
		c.fail(c.dir.DropClaims(func(mark string) bool { return !c.standing(mark) }))
	}
	return c.print()
}

func (c *collector) fail(err error) {
	if err != nil {
		c.out.Errors = append(c.out.Errors, err.Error())
	}
}

// gone are the attachments of records and of the cache that are to go. Where there
// is a record it decides: it knows the namespace from its successor.
func (c *collector) gone() ([]collectedAttachment, error) {
	records, err := c.dir.List("")
	if err != nil {
		return nil, fmt.Errorf("%w\nThe records of attachments are root's. Type: sudo fairlead gc --all", err)
	}
	if c.cached, err = c.cni.GetCachedAttachments(""); err != nil {
		c.fail(err)
	}
	found := map[kernel.Owner]*collectedAttachment{}
	known := map[kernel.Owner]bool{}
	for _, r := range records {
		known[r.Owner()] = true
		s := state(r)
		if s == stateOK || s == stateAdding {
			c.out.Kept++
			continue
		}
		g := &collectedAttachment{r.Network, r.ContainerID, r.IfName, r.Netns, s, r.Owner(), true, "", false, nil}
		if r.Living() {
			g.alive = r.Netns
		}
		found[g.owner] = g
	}
	for _, a := range c.cached {
		o := kernel.Owner{Network: a.Network, ContainerID: a.ContainerID, IfName: a.IfName}
		if g := found[o]; g != nil {
			g.cache = a
		}
		if known[o] || a.NetNS == "" || isNetns(a.NetNS) {
			continue
		}
		found[o] = &collectedAttachment{a.Network, a.ContainerID, a.IfName, a.NetNS, stateGone, o, false, "", false, a}
	}
	for _, o := range c.dir.CutOff() {
		if !known[o] && found[o] == nil && !slices.ContainsFunc(c.cached, c.isCached(o)) {
			found[o] = &collectedAttachment{Network: o.Network, Container: o.ContainerID, IfName: o.IfName, Reason: stateCut, owner: o}
		}
	}
	var out []collectedAttachment
	for _, g := range found {
		out = append(out, *g)
	}
	slices.SortFunc(out, func(a, b collectedAttachment) int { return strings.Compare(a.owner.Tag(), b.owner.Tag()) })
	return out, nil
}

func (c *collector) isCached(o kernel.Owner) func(*libcni.NetworkAttachment) bool {
	return func(a *libcni.NetworkAttachment) bool {
		return a.Network == o.Network && a.ContainerID == o.ContainerID && a.IfName == o.IfName
	}
}

// remove detaches what is gone: as a runtime does where a configuration of the
// network is left, else by what the record and the marks say.
func (c *collector) remove(ctx context.Context, g collectedAttachment) {
	if !c.dry {
		if err := c.removeNow(plugin.Collecting(ctx), g); err != nil {
			if e, ok := errors.AsType[*cni.Error](err); ok && e.Code == cni.CodeTryAgainLater {
				c.out.Untouched = append(c.out.Untouched, g.words()+": "+err.Error())
				return
			}
			c.fail(fmt.Errorf("%s: %w", g.words(), err))
			return
		}
	}
	c.out.Attachments = append(c.out.Attachments, g)
}

func (g collectedAttachment) words() string {
	return "container " + g.Container + ", network " + g.Network + ", interface " + g.IfName
}

func (c *collector) removeNow(ctx context.Context, g collectedAttachment) error {
	if !g.record { // nothing tells an ADD at work from what is gone but its place
		place, err := c.dir.Reserve(g.owner)
		if errors.Is(err, os.ErrExist) {
			return cni.Errorf(cni.CodeTryAgainLater, "%w", err)
		}
		if err != nil {
			return err
		}
		defer place.Free()
	}
	list, rt := c.configuration(g)
	if list == nil {
		return c.byRecord(ctx, g)
	}
	err := c.cni.DelNetworkList(ctx, list, rt)
	if e, ok := errors.AsType[*cni.Error](err); ok && e.Code == cni.CodeTryAgainLater {
		return err
	}
	if err == nil {
		if _, err := c.dir.Read(g.owner); errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return c.byRecord(ctx, g) // the plugins there are others', and leave what is Fairlead's
	}
	// A plugin that is not there any more keeps nobody from taking away what is ours.
	if err2 := c.byRecord(ctx, g); err2 != nil {
		return errors.Join(err, err2)
	}
	return fmt.Errorf("what is Fairlead's is removed, but: %w", err)
}

// configuration is what the attachment was made with, or what the network has
// now; nil if neither is left.
func (c *collector) configuration(g collectedAttachment) (*libcni.NetworkConfigList, *libcni.RuntimeConf) {
	rt := &libcni.RuntimeConf{ContainerID: g.Container, NetNS: g.alive, IfName: g.IfName}
	if g.cache != nil {
		rt.Args, rt.CapabilityArgs = g.cache.CniArgs, g.cache.CapabilityArgs
		if list, err := g.cache.List(); err == nil {
			return list, rt
		}
	}
	list, err := libcni.LoadNetworkConf(c.confDir(), g.Network)
	if err != nil {
		return nil, rt
	}
	return list, rt
}

func (c *collector) print() error {
	if c.json {
		if err := c.printJSON(c.out); err != nil {
			return err
		}
	} else {
		c.printText()
	}
	if len(c.out.Errors) > 0 {
		return silentError{exitFailed}
	}
	return nil
}

func (c *collector) printText() {
	verb := "removed"
	if c.dry {
		verb = "would remove"
	}
	for _, g := range c.out.Attachments {
		fmt.Fprintf(c.stdout, "%s %s %s %s: %s\n", verb, g.Network, g.Container, g.IfName, g.Reason)
	}
	for _, m := range c.out.Leftovers {
		fmt.Fprintf(c.stdout, "%s what is marked %q: there is no such attachment\n", verb, m)
	}
	for _, a := range c.out.Addresses {
		fmt.Fprintf(c.stdout, "%s address %s of network %s: held by %q, which has no attachment\n", verb, a.Address, a.Network, strings.TrimSpace(a.Container+" "+a.IfName))
	}
	for _, r := range c.out.Results {
		fmt.Fprintf(c.stdout, "%s %s: nobody can read it: %s\n", verb, r.File, r.Reason)
	}
	for _, s := range c.out.Untouched {
		fmt.Fprintln(c.stdout, "left alone: "+s)
	}
	for _, e := range c.out.Errors {
		fmt.Fprintln(c.stderr, "fairlead: gc: "+e)
	}
	if len(c.out.Attachments)+len(c.out.Leftovers)+len(c.out.Addresses)+len(c.out.Results) == 0 {
		fmt.Fprintf(c.stdout, "Nothing is left behind; %d attachments stand.\n", c.out.Kept)
	}
}
