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
	"github.com/fairlead/fairlead/plugins/ruleset"
	"github.com/fairlead/fairlead/repair"
)

// removeByRecord removes what Fairlead created for an attachment, without any configuration.
func (c *collector) removeByRecord(ctx context.Context, g Attachment) error {
	rec, place, err := c.take(ctx, g)
	if err != nil {
		return err
	}
	defer place.Free()
	defer rec.Unlock()
	if rec != nil && !g.forced {
		if s := rec.State(); attach.Exists(s) {
			return errAddedAgain()
		}
	}
	left := inHost(rec, func() error { return c.removeObjects(ctx, g, rec) })
	if !c.holds(rec, place) {
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
	if left == nil && c.holds(rec, place) { // otherwise the next run tries again
		errs = append(errs, c.dir.Remove(g.owner))
	}
	return errors.Join(errs...)
}

func errAddedAgain() error {
	return cni.Errorf(cni.CodeTryAgainLater, "it has been added again")
}

// take takes an attachment's record, or its reservation if a DEL was first. Of an interrupted ADD it takes both. Then no ADD
// of the attachment begins meanwhile.
func (c *collector) take(ctx context.Context, g Attachment) (rec *attach.Record, place *attach.Reservation, err error) {
	rec, err = c.dir.Take(ctx, g.owner)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, nil, err
	}
	switch {
	case g.forced, rec != nil && rec.IsHeld(), rec == nil && g.reserved:
		return rec, nil, nil
	case rec != nil:
		rec, place, err = c.dir.TakeForGC(rec)
	default:
		place, err = c.dir.Reserve(g.owner)
	}
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrExist) {
		err = errAddedAgain()
	}
	return rec, place, err
}

// holds reports whether the record that take took is still the attachment's: a DEL of an interrupted ADD does not wait.
func (c *collector) holds(rec *attach.Record, place *attach.Reservation) bool {
	return rec == nil || place == nil || c.dir.HoldsForGC(rec, place)
}

// inHost is repair.InHost for a record that may be nil. If an isolated network's namespace is gone, the function runs here.
func inHost(rec *attach.Record, do func() error) error {
	if rec == nil {
		return do()
	}
	ran := false
	err := repair.InHost(rec, func() error { ran = true; return do() })
	if !ran && errors.Is(err, os.ErrNotExist) {
		return do()
	}
	return err
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

// removeTagged removes objects with the owner tag of an attachment that does not exist, and the rules of missing bridges.
// An ADD writes its record before it creates its first tagged object.
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
	bridges, err := ruleset.RemoveIngress(e, func(string) bool { return true }, c.DryRun)
	c.fail(err)
	c.out.Bridges = append(c.out.Bridges, bridges...)
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
