package plugin

import (
	"context"
	"errors"
	"os"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/skel"
)

// del removes the attachment, with or without its namespace, its record or a
// prevResult. It tries everything and reports every error.
func (r *runner) del(ctx context.Context, args *skel.CmdArgs) error {
	j, err := r.begin(args, false)
	if err != nil {
		return err
	}
	defer j.end()
	err = errors.Join(j.unmake(ctx, func() error { return j.ipam.del(ctx) }), j.release())
	if err != nil {
		return err
	}
	return j.forget(anyPart)
}

// unmake removes this plugin's objects. The kernel makes whoever removes a
// link wait, so everything else is done in the meantime.
func (j *job) unmake(ctx context.Context, meanwhile func() error) error {
	if j.Exclusive && j.netns != nil { // an ADD meanwhile may take what is about to go
		if err := j.netns.Lock(ctx); err != nil {
			return err
		}
	}
	list, recorded := j.known()
	links, rest := kernel.Split(list)
	errs := make(chan error, 1)
	waiter, err := kernel.Open(j.netns, kernel.Options{})
	if err != nil {
		return err
	}
	var joined []error
	if j.ipam.afterLinks() { // it may need them to give addresses back
		joined = append(joined, meanwhile())
		meanwhile = func() error { return nil }
	}
	go func() {
		defer waiter.Close()
		errs <- waiter.Remove(links)
	}()
	joined = append(joined, meanwhile(), j.engine.Remove(rest))
	if !recorded {
		joined = append(joined, j.engine.RemoveMarked(j.att.Owner.Owns))
	}
	return errors.Join(append(joined, <-errs)...)
}

// known is what to remove: by the record, or else by what the configuration
// says; then elements are to be looked for by owner, too.
func (j *job) known() (list kernel.Objects, recorded bool) {
	if rec, err := j.dir.Read(j.att.Owner); err == nil {
		if i := rec.Last(j.Name); i >= 0 {
			return rec.Parts[i].Objects, true
		}
	}
	// What cannot be stated any more is not found by name.
	if f, ok := j.conf.(Finder); ok {
		list, _ = f.Find(j.att)
	} else {
		list, _ = j.conf.Links(j.att, &cni.Result{})
	}
	return list, false
}

// gc removes what carries this network's marks and no valid attachment owns.
func (r *runner) gc(ctx context.Context, args *skel.CmdArgs) error {
	j, err := r.begin(args, false)
	if err != nil {
		return err
	}
	defer j.end()
	errs := []error{j.gcRecords(ctx), j.gcMarked()}
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
	if rec.Created.After(j.began) {
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
	for _, rec := range all {
		if rec.Network != j.base.Name || j.valid(rec.Owner()) || rec.Last(j.Name) < 0 {
			continue
		}
		errs = append(errs, j.gcOne(ctx, rec))
	}
	return errors.Join(errs...)
}

func (j *job) gcOne(ctx context.Context, rec *attach.Record) error {
	netns, err := kernel.OpenNetns(rec.Netns)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if netns != nil {
		defer netns.Close()
	}
	engine, err := kernel.Open(netns, kernel.Options{})
	if err != nil {
		return err
	}
	defer engine.Close()
	engine.UseSwitch(j.ovs)
	att := *j.att
	att.Owner = rec.Owner()
	one := &job{runner: j.runner, args: j.args, conf: j.conf, base: j.base, att: &att, netns: netns, engine: engine, dir: j.dir}
	if err := errors.Join(one.unmake(ctx, func() error { return nil }), one.release()); err != nil {
		return err
	}
	return one.forget(anyPart)
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
	if !j.Chained {
		errs = append(errs, j.engine.RemoveMarkedLinks(dead))
	}
	return errors.Join(append(errs, j.engine.RemoveMarked(dead))...)
}

// standing tells whether a mark is of an attachment that has a record by now.
func (j *job) standing(mark string) bool { return j.dir.ByMark(mark) != nil }
