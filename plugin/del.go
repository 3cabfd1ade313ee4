package plugin

import (
	"context"
	"errors"
	"slices"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/skel"
)

// del removes the attachment, with or without its namespace, its record or a
// prevResult. It tries everything and reports every error.
func (r *runner) del(ctx context.Context, args *skel.CmdArgs) error {
	s, shared := sessionOf(ctx, args.Netns, r.env.Root)
	if !shared {
		defer s.close()
	}
	j, err := r.begin(s, args, false)
	if err != nil {
		return err
	}
	if err := j.leave(ctx); err != nil || shared {
		return err
	}
	return s.sweep(ctx)
}

// leave notes what a plugin's DEL is to take away. What may not go at the same
// time as others' goes after theirs.
func (j *job) leave(ctx context.Context) error {
	var joined []error
	if j.Exclusive && j.netns != nil { // an ADD meanwhile may take what is about to go
		if err := j.netns.Lock(ctx); err != nil {
			return err
		}
	}
	if len(j.leaving) > 0 && j.leaving[0].att.Owner != j.att.Owner {
		joined = append(joined, j.sweep(ctx))
	}
	j.known()
	if alone(j.objects) {
		joined = append(joined, j.sweep(ctx))
	}
	if j.ipam.afterLinks() { // it may need them to give addresses back
		joined = append(joined, j.ipam.del(ctx))
		j.ipam = ipam{}
	}
	j.leaving = append(j.leaving, j)
	if alone(j.objects) {
		joined = append(joined, j.sweep(ctx))
	}
	return errors.Join(joined...)
}

// alone tells whether objects have to go in the order in which they were made,
// others' before and after them: a device that comes home with the settings it
// has, a virtual router that its members leave first, routes that come back.
func alone(list kernel.Objects) bool {
	for _, o := range list {
		switch o.(type) {
		case *kernel.Moved, *kernel.VRF, *kernel.Member, *kernel.NoRoute, *kernel.OVSPort:
			return true
		}
	}
	return false
}

// sweep takes away what the plugins of the session left, and forgets it.
func (s *session) sweep(ctx context.Context) error {
	jobs := s.leaving
	s.leaving = nil
	if len(jobs) == 0 {
		return nil
	}
	err := s.unmake(jobs, func() error {
		var errs []error
		for _, j := range jobs {
			errs = append(errs, s.blame(j, j.ipam.del(ctx)))
		}
		return errors.Join(errs...)
	})
	errs := []error{err}
	var names []string
	for _, j := range jobs {
		errs = append(errs, s.blame(j, j.release()))
		names = append(names, j.Name)
		j.end()
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	o := jobs[0].att.Owner
	if s.past != nil && len(s.past.Parts) == 0 {
		return s.dir.Remove(o)
	}
	return s.forget(o, names)
}

// blame notes whose part failed first.
func (s *session) blame(j *job, err error) error {
	if err != nil && s.failed < 0 {
		s.failed = j.member
	}
	return err
}

// unmake removes the objects of plugins, given in the order in which they are to
// go. The kernel makes whoever removes a link wait, so everything else is done in
// the meantime.
func (s *session) unmake(jobs []*job, meanwhile func() error) error {
	var list kernel.Objects
	recorded := true
	for _, j := range slices.Backward(jobs) {
		list = append(list, j.objects...)
		recorded = recorded && j.recorded
	}
	links, rest := kernel.Split(list)
	wait := func() error { return nil }
	if len(links) > 0 {
		waiter, err := kernel.Open(s.netns, kernel.Options{})
		if err != nil {
			return err
		}
		defer waiter.Close()
		gone := make(chan error, 1)
		go func() { gone <- waiter.Remove(links) }()
		wait = func() error { return <-gone }
	}
	joined := []error{meanwhile(), s.blameObject(jobs, s.engine.Remove(rest))}
	if !recorded {
		joined = append(joined, s.engine.RemoveMarked(jobs[0].att.Owner.Owns))
	}
	return errors.Join(append(joined, s.blameObject(jobs, wait()))...)
}

// blameObject is blame by the object that an error names.
func (s *session) blameObject(jobs []*job, err error) error {
	if o, ok := errors.AsType[*kernel.ObjectError](err); ok {
		for _, j := range jobs {
			if slices.Contains(j.objects, o.Object) {
				return s.blame(j, err)
			}
		}
	}
	return err
}

// known is what to remove: by the record, or else by what the configuration
// says; then elements are to be looked for by owner, too.
func (j *job) known() {
	if j.past == nil || j.past.Owner() != j.att.Owner {
		j.past, _ = j.dir.Read(j.att.Owner)
	}
	if j.past != nil {
		if i := j.past.Last(j.Name); i >= 0 {
			part := j.past.Parts[i]
			j.past.Parts = slices.Delete(j.past.Parts, i, i+1)
			j.ports = part.Ports
			if list, err := part.Objects.Get(); err == nil {
				j.objects, j.recorded = list, true
				return
			}
		}
	}
	// What cannot be stated any more is not found by name.
	if f, ok := j.conf.(Finder); ok {
		j.objects, _ = f.Find(j.att)
	} else {
		j.objects, _ = j.conf.Links(j.att, &cni.Result{})
	}
}

// gc removes what carries this network's marks and no valid attachment owns.
func (r *runner) gc(ctx context.Context, args *skel.CmdArgs) error {
	s := newSession(r.env.Root)
	defer s.close()
	j, err := r.begin(s, args, false)
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
	if !j.Chained {
		errs = append(errs, j.engine.RemoveMarkedLinks(dead))
	}
	return errors.Join(append(errs, j.engine.RemoveMarked(dead))...)
}

// standing tells whether a mark is of an attachment that has a record by now.
func (j *job) standing(mark string) bool { return j.dir.ByMark(mark) != nil }
