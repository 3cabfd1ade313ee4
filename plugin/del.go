package plugin

import (
	"context"
	"errors"
	"os"
	"slices"

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
	j.known()
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
	if err := errors.Join(errs...); err != nil {
		return err
	}
	o := jobs[0].att.Owner
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
//
// A record that is there and cannot be read is an error in the end, so that DEL
// comes again: names and marks do not lead to all that a record says.
func (j *job) known() {
	if j.past == nil || j.past.Owner() != j.att.Owner {
		var err error
		if j.past, err = j.dir.Read(j.att.Owner); err != nil && !errors.Is(err, os.ErrNotExist) {
			j.unread = err
		}
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
