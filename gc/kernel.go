package gc

import (
	"context"
	"errors"
	"os"
	"slices"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/ipam"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/inspect"
	"github.com/fairlead/fairlead/kernel/netns"
	"github.com/fairlead/fairlead/plugins/ovs"
)

// removeByRecord removes what Fairlead created for an attachment, without any configuration.
func (c *collector) removeByRecord(ctx context.Context, g Attachment) error {
	rec, err := c.dir.Take(ctx, g.owner)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	ours := func() bool { return true }
	if rec != nil && !rec.IsHeld() && !g.forced { // an interrupted ADD: no ADD of the attachment begins meanwhile
		taken, place, err := c.dir.TakeForGC(rec)
		if errors.Is(err, os.ErrNotExist) {
			return errAddedAgain()
		}
		if err != nil {
			return err
		}
		defer place.Free()
		rec, ours = taken, func() bool { return c.dir.HoldsForGC(taken, place) }
	}
	if rec == nil && !g.reserved && !g.forced { // a DEL was first
		place, err := c.dir.Reserve(g.owner)
		if errors.Is(err, os.ErrExist) {
			return errAddedAgain()
		}
		if err != nil {
			return err
		}
		defer place.Free()
	}
	defer rec.Unlock()
	if rec != nil && !g.forced {
		if s := rec.State(); attach.Exists(s) {
			return errAddedAgain()
		}
	}
	left := inHost(rec, func() error { return c.removeObjects(ctx, g, rec) })
	if !ours() {
		return errAddedAgain()
	}
	errs := []error{left}
	for _, s := range c.addressDirs() {
		if s.cluster || s.network == g.Network {
			_, err := s.free(ctx, func(h ipam.Allocation) bool {
				return h.Owner.ContainerID == g.Container && (h.Owner.IfName == g.IfName || h.Owner.IfName == "")
			})
			errs = append(errs, err)
		}
	}
	if left == nil && ours() { // otherwise the next run tries again
		errs = append(errs, c.dir.Remove(g.owner))
	}
	return errors.Join(errs...)
}

func errAddedAgain() error {
	return cni.Errorf(cni.CodeTryAgainLater, "it has been added again")
}

// inHost runs a function in the network namespace that holds the host's side of an attachment. If that is gone, with what it
// held, it runs the function in the current one.
func inHost(rec *attach.Record, do func() error) error {
	if rec == nil || rec.Host == "" {
		return do()
	}
	ns, err := netns.Open(rec.Host)
	if errors.Is(err, os.ErrNotExist) {
		return do()
	}
	if err != nil {
		return err
	}
	defer ns.Close()
	return ns.Do(do)
}

func (c *collector) removeObjects(ctx context.Context, g Attachment, rec *attach.Record) error {
	var ns *netns.Handle
	if g.alive != "" && rec != nil && rec.HasNetns() {
		var err error
		if ns, err = netns.Open(g.alive); err != nil {
			return err
		}
		defer ns.Close()
	}
	e, err := kernel.Open(ns, kernel.Options{Context: ctx})
	if err != nil {
		return err
	}
	defer e.Close()
	var errs []error
	if rec != nil {
		list, err := rec.Objects()
		sw := ovs.Switch(g.Network)
		e.UseSwitch(sw)
		errs = append(errs, err, e.Remove(list))
		sw.Close()
		e.UseSwitch(nil) // only the objects name the database
		for _, p := range rec.Parts {
			errs = append(errs, c.dir.Unclaim(ctx, g.owner, p.Ports))
		}
	}
	return errors.Join(append(errs, e.RemoveTaggedLinks(g.owner.Owns), e.RemoveTagged(g.owner.Owns))...)
}

// removeTagged removes objects with the owner tag of an attachment that does not exist. An ADD writes its record before
// it creates its first tagged object.
func (c *collector) removeTagged() {
	e, err := kernel.Open(nil, kernel.Options{})
	if err != nil {
		c.fail(err)
		return
	}
	defer e.Close()
	if c.used, err = inspect.TagsInUse(e); err != nil {
		c.fail(err)
		return
	}
	remove := func(tag string) bool {
		if c.inUse(tag) {
			return false
		}
		if !slices.Contains(c.out.Leftovers, tag) {
			c.out.Leftovers = append(c.out.Leftovers, tag)
		}
		return !c.DryRun
	}
	c.fail(e.RemoveTaggedLinks(remove))
	c.fail(e.RemoveTagged(remove))
}

// inUse reports whether an owner tag belongs to an attachment that exists: one with a record, a reservation, a cached
// result, or a link into a namespace in use.
func (c *collector) inUse(tag string) bool {
	if c.used[tag] || !kernel.IsOwnerTag(tag) || c.dir.HasTag(tag) {
		return true
	}
	for _, g := range c.out.Attachments {
		if c.DryRun && g.owner.Owns(tag) {
			return true // the report has it already
		}
	}
	for _, a := range c.cached {
		o := kernel.Owner{Network: a.Network, ContainerID: a.ContainerID, IfName: a.IfName}
		if o.Owns(tag) && mayLive(a) {
			return true
		}
	}
	o, ok := kernel.ParseOwnerTag(tag)
	return ok && c.dir.Reserved(o)
}
