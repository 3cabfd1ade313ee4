package plugin

import (
	"context"
	"errors"
	"os"
	"slices"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/skel"
)

// gc removes what carries this network's owner tags and belongs to no valid attachment.
func (r *runner) gc(ctx context.Context, args *skel.CmdArgs) error {
	ctx, start := GCStart(ctx)
	s := newSession(ctx, r.env.Root)
	defer s.close()
	j, err := r.begin(s, args, false)
	if err != nil {
		return err
	}
	defer j.end()
	j.start = start
	if err := j.keepInProgress(); err != nil {
		return err
	}
	errs := []error{j.gcRecords(ctx), j.gcTagged(ctx), j.dir.ClearReservations(j.base.Name)}
	if !j.Chained {
		errs = append(errs, j.ipam.gc(ctx))
	}
	return errors.Join(errs...)
}

// keepInProgress treats attachments as valid whose ADD is in progress or was when this GC started. The IPAM plugin gets
// them, too: it may have allocated an address that is in no record yet.
func (j *job) keepInProgress() error {
	list, err := j.dir.InProgress(j.base.Name) // first: one of these may get its record a moment later
	if err != nil {
		return err
	}
	all, err := j.dir.List(j.base.Name)
	if err != nil {
		return err
	}
	for _, rec := range all {
		if j.recent(rec) {
			list = append(list, cni.Attachment{ContainerID: rec.ContainerID, IfName: rec.IfName})
		}
	}
	valid, known := j.base.ValidAttachments, map[cni.Attachment]bool{}
	for _, a := range valid {
		known[a] = true
	}
	for _, a := range list {
		if !known[a] {
			known[a], valid = true, append(valid, a)
		}
	}
	if len(valid) == len(j.base.ValidAttachments) {
		return nil
	}
	j.base.ValidAttachments = valid
	return j.ipam.keep(valid)
}

// validOwners returns the attachments that must be left alone: those that the runtime lists, and those that keepInProgress
// added. The runtime does not list the interface of a plugin that has one of its own.
func (j *job) validOwners() map[cni.Attachment]bool {
	out := map[cni.Attachment]bool{}
	for _, a := range j.base.ValidAttachments {
		out[j.listed(a)] = true
	}
	return out
}

// listed returns an attachment as validOwners has it.
func (j *job) listed(a cni.Attachment) cni.Attachment {
	if j.IfName != "" {
		a.IfName = ""
	}
	return a
}

func (j *job) recent(rec *attach.Record) bool {
	if rec.Since > j.start {
		return true
	}
	for _, p := range rec.Parts {
		if p.Adding() {
			return true
		}
	}
	return false
}

// gcBatchSize bounds the records that a GC holds at a time; each needs two open files.
const gcBatchSize = 200

// gcRecords removes this plugin's part of every invalid attachment that has a record.
func (j *job) gcRecords(ctx context.Context) error {
	all, err := j.dir.List(j.base.Name)
	errs := []error{err}
	valid := j.validOwners()
	dead := slices.DeleteFunc(all, func(rec *attach.Record) bool {
		return rec.Network != j.base.Name || valid[j.listed(cni.Attachment{ContainerID: rec.ContainerID, IfName: rec.IfName})] || j.recent(rec) || rec.Last(j.Name) < 0
	})
	for part := range slices.Chunk(dead, gcBatchSize) {
		errs = append(errs, j.gcBatch(ctx, part))
	}
	return errors.Join(errs...)
}

// gcBatch removes only what it can take: a DEL, and another ADD of the same names, may have run since the listing.
func (j *job) gcBatch(ctx context.Context, list []*attach.Record) error {
	var errs []error
	var gone []*session
	var links kernel.Objects
	for _, listed := range list {
		rec, place, err := j.dir.TakeForGC(listed)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		s := newSession(ctx, j.env.Root)
		defer s.close()
		s.past, s.reservation, s.reservedFor, s.forGC = rec, place, rec.Owner(), true
		gone = append(gone, s)
		if i := rec.Last(j.Name); i >= 0 {
			list, _ := rec.Parts[i].Objects.Get() // unreadable objects are found by owner tag
			links = append(links, list...)
		}
	}
	j.engine.RemoveLinksInBatches(links) // the kernel waits once, not once for each attachment
	for _, s := range gone {
		errs = append(errs, j.gcOne(ctx, s))
	}
	return errors.Join(errs...)
}

func (j *job) gcOne(ctx context.Context, s *session) error {
	if !s.dir.HoldsForGC(s.past, s.reservation) {
		return nil // a DEL was first, and another ADD may have the attachment
	}
	if err := s.begin(s.past.Netns, false); err != nil {
		return err
	}
	s.engine.UseSwitch(j.ovs)
	att := *j.att
	att.Owner = s.past.Owner()
	args := *j.args
	args.ContainerID, args.Netns, args.IfName = s.past.ContainerID, s.past.Netns, s.past.IfName
	one := &job{runner: j.runner, session: s, args: &args, conf: j.conf, base: j.base, att: &att}
	err := one.planRemoval(ctx)
	err = errors.Join(err, s.removeNoted(ctx))
	s.close() // now, not when all are done: it holds open files
	return err
}

// gcTagged removes objects without a record. It recognizes them by a link's alias or an element's comment.
func (j *job) gcTagged(ctx context.Context) error {
	valid := map[string]bool{} // by owner tag
	for _, v := range j.base.ValidAttachments {
		valid[kernel.Owner{Network: j.base.Name, ContainerID: v.ContainerID, IfName: v.IfName}.Tag()] = true
	}
	dead := func(tag string) bool {
		return kernel.IsTagOfNetwork(j.base.Name, tag) && !valid[tag] && !j.hasRecord(tag)
	}
	var errs []error
	if _, claims := j.conf.(Claimer); claims {
		errs = append(errs, j.dir.DropClaims(ctx, dead))
	}
	if !j.Chained {
		errs = append(errs, j.engine.RemoveTaggedLinks(dead))
	}
	return errors.Join(append(errs, j.engine.RemoveTagged(dead))...)
}

// hasRecord reports whether the attachment with this owner tag has a record by now.
func (j *job) hasRecord(tag string) bool { return j.dir.HasTag(tag) }
