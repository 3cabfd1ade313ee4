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

// gc removes what carries this network's marks and no valid attachment owns.
func (r *runner) gc(ctx context.Context, args *skel.CmdArgs) error {
	ctx, began := GCBegan(ctx)
	s := newSession(r.env.Root)
	defer s.close()
	j, err := r.begin(s, args, false)
	if err != nil {
		return err
	}
	defer j.end()
	j.began = began
	if err := j.spareBeginning(); err != nil {
		return err
	}
	errs := []error{j.gcRecords(ctx), j.gcMarked(), j.dir.ClearPlaces(j.base.Name)}
	if !j.Chained {
		errs = append(errs, j.ipam.gc(ctx))
	}
	return errors.Join(errs...)
}

// spareBeginning takes the attachments whose ADDs are at work, or were when this
// GC began, for valid ones: by this plugin, and by the IPAM plugin, which may
// have given an address that no record tells of yet.
func (j *job) spareBeginning() error {
	list, err := j.dir.Beginning(j.base.Name) // first: one of these may have its record a moment later
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
	valid := j.base.ValidAttachments
	for _, a := range list {
		if !slices.Contains(valid, a) {
			valid = append(valid, a)
		}
	}
	if len(valid) == len(j.base.ValidAttachments) {
		return nil
	}
	j.base.ValidAttachments = valid
	return j.ipam.spare(valid)
}

// valid tells whether an owner must be left alone: the runtime lists it, or it
// was added after this GC began, or its ADD is at work.
func (j *job) valid(o kernel.Owner) bool {
	return slices.Contains(j.base.ValidAttachments, cni.Attachment{ContainerID: o.ContainerID, IfName: o.IfName})
}

func (j *job) recent(rec *attach.Record) bool {
	if rec.Since > j.began {
		return true
	}
	for _, p := range rec.Parts {
		if p.Adding() {
			return true
		}
	}
	return false
}

// atOnce bounds the records that a GC has seized, each two open files.
const atOnce = 200

// gcRecords removes, of every invalid attachment that has a record, the part
// of this plugin.
func (j *job) gcRecords(ctx context.Context) error {
	all, err := j.dir.List(j.base.Name)
	errs := []error{err}
	dead := slices.DeleteFunc(all, func(rec *attach.Record) bool {
		return rec.Network != j.base.Name || j.valid(rec.Owner()) || j.recent(rec) || rec.Last(j.Name) < 0
	})
	for part := range slices.Chunk(dead, atOnce) {
		errs = append(errs, j.gcSome(ctx, part))
	}
	return errors.Join(errs...)
}

// gcSome removes what is seized: between the look at a record and its removal a
// DEL, and another ADD of the same names, may have come.
func (j *job) gcSome(ctx context.Context, list []*attach.Record) error {
	var errs []error
	var gone []*session
	var links kernel.Objects
	for _, listed := range list {
		rec, place, err := j.dir.Seize(listed)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		s := newSession(j.env.Root)
		defer s.close()
		s.past, s.place, s.placeOf, s.seized = rec, place, rec.Owner(), true
		gone = append(gone, s)
		if i := rec.Last(j.Name); i >= 0 {
			list, _ := rec.Parts[i].Objects.Get() // what cannot be read is found by mark
			links = append(links, list...)
		}
	}
	j.engine.RemoveLinksInBatches(links) // the kernel waits once, not for each attachment
	for _, s := range gone {
		errs = append(errs, j.gcOne(ctx, s))
	}
	return errors.Join(errs...)
}

func (j *job) gcOne(ctx context.Context, s *session) error {
	if err := s.begin(s.past.Netns, false); err != nil {
		return err
	}
	s.engine.UseSwitch(j.ovs)
	att := *j.att
	att.Owner = s.past.Owner()
	args := *j.args
	args.ContainerID, args.Netns, args.IfName = s.past.ContainerID, s.past.Netns, s.past.IfName
	one := &job{runner: j.runner, session: s, args: &args, conf: j.conf, base: j.base, att: &att}
	if err := one.leave(ctx); err != nil {
		return err
	}
	err := s.sweep(ctx)
	s.close() // now, not when all are done
	return err
}

// gcMarked removes what has no record: by the alias of a link, the comment of
// an element.
func (j *job) gcMarked() error {
	dead := func(mark string) bool {
		if !kernel.IsTagOfNetwork(j.base.Name, mark) {
			return false
		}
		for _, v := range j.base.ValidAttachments {
			o := kernel.Owner{Network: j.base.Name, ContainerID: v.ContainerID, IfName: v.IfName}
			if o.Owns(mark) {
				return false
			}
		}
		return !j.standing(mark)
	}
	var errs []error
	if _, claims := j.conf.(Claimer); claims {
		errs = append(errs, j.dir.DropClaims(dead))
	}
	if !j.Chained {
		errs = append(errs, j.engine.RemoveTaggedLinks(dead))
	}
	return errors.Join(append(errs, j.engine.RemoveTagged(dead))...)
}

// standing tells whether a mark is of an attachment that has a record by now.
func (j *job) standing(mark string) bool { return j.dir.ByMark(mark) != nil }
