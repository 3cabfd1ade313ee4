package plugin

import (
	"context"
	"errors"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/skel"
)

// gc removes what carries this network's marks and no valid attachment owns.
func (r *runner) gc(ctx context.Context, args *skel.CmdArgs) error {
	s := newSession(r.env.Root)
	defer s.close()
	j, err := r.begin(s, args, false)
	if err != nil {
		return err
	}
	defer j.end()
	errs := []error{j.gcRecords(ctx), j.gcMarked(), j.dir.ClearPlaces(j.base.Name)}
	if !j.Chained {
		errs = append(errs, j.ipam.gc(ctx))
	}
	return errors.Join(errs...)
}

// valid tells whether an owner must be left alone: the runtime lists it, or it
// was added after this GC began, or its ADD is at work.
func (j *job) valid(o kernel.Owner) bool {
	for _, v := range j.base.ValidAttachments {
		if v.ContainerID == o.ContainerID && v.IfName == o.IfName {
			return true
		}
	}
	rec, err := j.dir.Read(o)
	return err == nil && j.recent(rec)
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

// gcRecords removes, of every invalid attachment that has a record, the part
// of this plugin.
func (j *job) gcRecords(ctx context.Context) error {
	all, err := j.dir.List(j.base.Name)
	errs := []error{err}
	var gone []*attach.Record
	var links kernel.Objects
	for _, rec := range all {
		i := rec.Last(j.Name)
		if rec.Network != j.base.Name || j.valid(rec.Owner()) || i < 0 {
			continue
		}
		gone = append(gone, rec)
		list, _ := rec.Parts[i].Objects.Get() // what cannot be read is found by mark
		links = append(links, list...)
	}
	j.engine.RemoveTogether(links) // the kernel waits once, not for each attachment
	for _, rec := range gone {
		errs = append(errs, j.gcOne(ctx, rec))
	}
	return errors.Join(errs...)
}

func (j *job) gcOne(ctx context.Context, rec *attach.Record) error {
	s := newSession(j.env.Root)
	defer s.close()
	if err := s.begin(rec.Netns, false); err != nil {
		return err
	}
	s.engine.UseSwitch(j.ovs)
	att := *j.att
	att.Owner = rec.Owner()
	one := &job{runner: j.runner, session: s, args: j.args, conf: j.conf, base: j.base, att: &att}
	if err := one.leave(ctx); err != nil {
		return err
	}
	return s.sweep(ctx)
}

// gcMarked removes what has no record: by the alias of a link, the comment of
// an element.
func (j *job) gcMarked() error {
	dead := func(mark string) bool {
		if !kernel.MarkOf(j.base.Name, mark) {
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
		errs = append(errs, j.dir.ClearClaims(dead))
	}
	if !j.Chained {
		errs = append(errs, j.engine.RemoveMarkedLinks(dead))
	}
	return errors.Join(append(errs, j.engine.RemoveMarked(dead))...)
}

// standing tells whether a mark is of an attachment that has a record by now.
func (j *job) standing(mark string) bool { return j.dir.ByMark(mark) != nil }
