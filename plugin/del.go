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
	if len(j.leaving) > 0 && j.leaving[0].att.Owner != j.att.Owner {
		joined = append(joined, j.sweep(ctx))
	}
	if err := j.lockFree(ctx); err != nil {
		return err
	}
	if err := j.known(ctx); err != nil {
		return errors.Join(append(joined, err)...)
	}
	if alone(j.objects) {
		joined = append(joined, j.sweep(ctx))
		if err := j.lockFree(ctx); err != nil {
			return err
		}
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

// lockFree: an ADD meanwhile may take what is about to go.
func (j *job) lockFree(ctx context.Context) error {
	if !j.Exclusive || j.netns == nil {
		return nil
	}
	return j.lock(ctx)
}

// alone tells whether objects have to go in the order in which they were made,
// others' before and after them: a device that comes home with the settings it
// has, a virtual router that its members leave first, routes that come back.
func alone(list kernel.Objects) bool {
	for _, o := range list {
		if kernel.RemovedInOrder(o) {
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
	errs := []error{err, s.unread}
	s.unread = nil
	var names []string
	for _, j := range jobs {
		errs = append(errs, s.blame(j, j.release()))
		names = append(names, j.Name)
		j.end()
	}
	s.unlockNetns()
	past := s.past
	s.past = nil // another process may write it next
	defer past.Unlock()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	o := jobs[0].att.Owner
	if s.seized {
		return s.dir.Strike(past, s.place)
	}
	if past != nil && len(past.Parts) == 0 {
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
	links, rest := kernel.SplitLinks(list)
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
	release := s.bequeath(jobs)
	joined := []error{s.blameObject(jobs, s.engine.Remove(rest))}
	release()
	if !recorded {
		joined = append(joined, s.engine.RemoveTagged(jobs[0].att.Owner.Owns))
	}
	// Addresses last: another may get one at once, and add elements for it.
	joined = append(joined, meanwhile())
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
// says; then elements are to be looked for by owner, too. A repair at work is
// waited for, and the next one waits.
//
// A record that is there and cannot be read is an error in the end, so that DEL
// comes again: names and marks do not lead to all that a record says.
func (j *job) known(ctx context.Context) error {
	if j.past == nil || j.past.Owner() != j.att.Owner {
		j.past.Unlock()
		var err error
		j.past, err = j.dir.Take(ctx, j.att.Owner)
		if e, ok := errors.AsType[*cni.Error](err); ok && e.Code == cni.CodeTryAgainLater {
			return err
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			j.unread = err
		}
	}
	if err := j.disown(); err != nil {
		return err
	}
	if OnlyGone(ctx) && j.past != nil && lives(j.past) {
		return cni.Errorf(cni.CodeTryAgainLater, "container %s was added to network %s as %s again meanwhile", j.past.ContainerID, j.past.Network, j.past.IfName)
	}
	if j.past != nil {
		if i := j.past.Last(j.Name); i >= 0 {
			part := j.past.Parts[i]
			j.past.Parts = slices.Delete(j.past.Parts, i, i+1)
			j.ports = part.Ports
			if list, err := part.Objects.Get(); err == nil {
				j.objects, j.recorded = list, true
				return nil
			}
		}
	}
	j.objects = j.unrecorded()
	return nil
}

// unrecorded is what the plugin may have made, or the reference's of its name, going by
// the configuration. What cannot be stated any more is not found by name.
func (j *job) unrecorded() (list kernel.Objects) {
	if f, ok := j.conf.(Finder); ok {
		list, _ = f.Find(j.att)
	} else {
		list, _ = j.conf.Links(j.att, &cni.Result{})
	}
	if h, ok := j.conf.(Heir); ok {
		list = append(list, h.Inherited(j.att)...)
	}
	return list
}

// disown lets go of a namespace that is not the one that the record tells of: the
// path names another container's by now, in which nothing is ours.
func (j *job) disown() (err error) {
	s := j.session
	if s.past == nil || s.netns == nil || s.past.NetnsID == "" {
		return nil
	}
	id, err := s.netns.ID() // of the one that is open: to look at the path again may fail, or find another
	if err != nil || id == s.past.NetnsID {
		return err
	}
	s.unlockNetns()
	s.engine.Close()
	s.netns.Close()
	s.netns = nil
	s.engine, err = kernel.Open(nil, kernel.Options{Alive: s.dir.Alive})
	if err == nil && j.ovs != nil {
		s.engine.UseSwitch(j.ovs)
	}
	return err
}

// onlyGoneKey marks a context: see OnlyGone.
type onlyGoneKey struct{}

// Collecting makes DELs leave alone an attachment that lives, or is being added:
// between a collector's look and its DEL the runtime may have added it again.
func Collecting(ctx context.Context) context.Context {
	return context.WithValue(ctx, onlyGoneKey{}, true)
}

// OnlyGone tells whether a DEL is a collector's: see Collecting.
func OnlyGone(ctx context.Context) bool { return ctx.Value(onlyGoneKey{}) != nil }

func lives(rec *attach.Record) bool {
	for _, p := range rec.Parts {
		if p.Adding() {
			return true
		}
	}
	return attached(rec) && rec.Living()
}
