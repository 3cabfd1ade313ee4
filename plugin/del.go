package plugin

import (
	"context"
	"errors"
	"os"
	"slices"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/netns"
	"github.com/fairlead/fairlead/skel"
)

// del removes the attachment, with or without its namespace, its record or a prevResult. It tries everything and
// reports every error.
func (r *runner) del(ctx context.Context, args *skel.CmdArgs) error {
	s, shared := sessionOf(ctx, args.Netns, r.env.Root)
	if !shared {
		defer s.close()
	}
	j, err := r.begin(s, args, false)
	if err != nil {
		return err
	}
	err = j.planRemoval(ctx)
	if shared {
		return err
	}
	return errors.Join(err, s.removeNoted(ctx))
}

// planRemoval notes what a plugin's DEL has to remove. Objects that need an order are removed on their own, after those
// of the plugins before.
func (j *job) planRemoval(ctx context.Context) error {
	var joined []error
	if len(j.removals) > 0 && j.removals[0].att.Owner != j.att.Owner {
		joined = append(joined, j.removeNoted(ctx))
	}
	if err := j.lockExclusive(ctx); err != nil {
		return err
	}
	if err := j.findObjects(ctx); err != nil {
		return errors.Join(append(joined, err)...)
	}
	if (needsOrder(j.objects) || j.ipam.afterLinks()) && len(j.removals) > 0 { // an address is released after its rules are gone
		joined = append(joined, j.removeNoted(ctx)) // it releases the record and the lock
		if err := errors.Join(j.lockExclusive(ctx), j.findObjects(ctx)); err != nil {
			return errors.Join(append(joined, err)...)
		}
	}
	if j.ipam.afterLinks() { // it may need the links to release addresses
		joined = append(joined, j.ipam.del(ctx))
		j.ipam = ipam{}
	}
	j.takePart()
	j.removals = append(j.removals, j)
	if needsOrder(j.objects) {
		joined = append(joined, j.removeNoted(ctx))
	}
	return errors.Join(joined...)
}

// lockExclusive stops a concurrent ADD from taking a name that this DEL is about to free.
func (j *job) lockExclusive(ctx context.Context) error {
	if !j.Exclusive || j.netns == nil {
		return nil
	}
	return j.lock(ctx)
}

// needsOrder reports whether objects must be removed in reverse order of creation, also relative to other plugins'
// objects: a device that returns to the host with its current settings, a VRF whose members leave first, routes that
// are restored.
func needsOrder(list kernel.Objects) bool {
	for _, o := range list {
		if kernel.RemovedInOrder(o) {
			return true
		}
	}
	return false
}

// removeNoted removes what the session's plugins noted, and then their parts of the record.
func (s *session) removeNoted(ctx context.Context) error {
	jobs := s.removals
	s.removals = nil
	if len(jobs) == 0 {
		return nil
	}
	var errs []error
	if s.forGC && !s.dir.HoldsForGC(s.past, s.reservation) {
		errs = append(errs, errAddedAgain(s.past)) // or only removed
	} else {
		errs = s.removeAll(ctx, jobs)
	}
	var names []string
	for _, j := range jobs {
		names = append(names, j.Name)
		j.end()
	}
	s.unlockNetns()
	past := s.past
	s.past = nil // another process may write it next
	defer past.Unlock()
	if err := errors.Join(errs...); err != nil {
		if s.forGC {
			s.reservation.Free()
		}
		return err
	}
	o := jobs[0].att.Owner
	if s.forGC {
		return s.dir.ReplaceParts(past, s.reservation)
	}
	remove := s.dir.Remove
	if IsCollecting(ctx) {
		remove = s.dir.Collect
	}
	if past != nil && len(past.Parts) == 0 {
		return remove(o)
	}
	return s.forget(o, names, remove)
}

// removeAll removes the objects, addresses and claims of plugins.
func (s *session) removeAll(ctx context.Context, jobs []*job) []error {
	err := s.removeObjects(jobs, func() error {
		var errs []error
		for _, j := range jobs {
			errs = append(errs, s.noteFailed(j, j.ipam.del(ctx)))
		}
		return errors.Join(errs...)
	})
	errs := []error{err, s.readErr}
	s.readErr = nil
	for _, j := range jobs {
		errs = append(errs, s.noteFailed(j, j.release(ctx)))
	}
	return errs
}

// noteFailed remembers the list position of the first plugin that failed.
func (s *session) noteFailed(j *job, err error) error {
	if err != nil && s.failed < 0 {
		s.failed = j.member
	}
	return err
}

// removeObjects removes the plugins' objects in the order given. The kernel blocks the caller that removes a link, so
// the other objects are removed at the same time. Addresses are not released while a link may still have them.
func (s *session) removeObjects(jobs []*job, releaseAddresses func() error) error {
	var list kernel.Objects
	recorded := true
	for _, j := range slices.Backward(jobs) {
		list = append(list, j.objects...)
		recorded = recorded && j.recorded
	}
	list, err := s.withoutOthers(jobs[0].att.Owner, list)
	if err != nil {
		return err
	}
	links, rest := kernel.SplitLinks(list)
	wait := func() error { return nil }
	if len(links) > 0 {
		waiter, err := kernel.Open(s.netns, kernel.Options{Context: s.ctx})
		if err != nil {
			return err
		}
		defer waiter.Close()
		done := make(chan error, 1)
		go func() { done <- netns.OnOwnThread(func() error { return waiter.Remove(links) }) }()
		wait = func() error { return <-done }
	}
	release := s.handOverPorts(jobs)
	joined := []error{s.noteFailedObject(jobs, s.engine.Remove(rest))}
	release()
	if !recorded {
		joined = append(joined, s.engine.RemoveTagged(jobs[0].att.Owner.Owns))
	}
	err = s.noteFailedObject(jobs, wait())
	if joined = append(joined, err); err == nil {
		joined = append(joined, releaseAddresses()) // last: the next owner may get an address at once
	}
	return errors.Join(joined...)
}

// noteFailedObject is noteFailed for the plugin whose object the error names.
func (s *session) noteFailedObject(jobs []*job, err error) error {
	if o, ok := errors.AsType[*kernel.ObjectError](err); ok {
		for _, j := range jobs {
			if slices.Contains(j.objects, o.Object) {
				return s.noteFailed(j, err)
			}
		}
	}
	return err
}

// findObjects finds what to remove: from the record, or else from the configuration, in which case elements are also
// searched by owner tag. It waits for a repair in progress, and holds off the next one.
//
// A record that exists but cannot be read makes DEL fail in the end, so that the runtime retries: names and owner tags
// do not lead to everything that a record contains.
func (j *job) findObjects(ctx context.Context) error {
	if j.past == nil || j.past.Owner() != j.att.Owner {
		j.past.Unlock()
		var err error
		j.past, err = j.dir.Take(ctx, j.att.Owner)
		if e, ok := errors.AsType[*cni.Error](err); ok && e.Code == cni.CodeTryAgainLater {
			return err
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			j.readErr = err
		}
		if j.forGC = false; IsCollecting(ctx) {
			if err := j.keepADDAway(ctx); err != nil {
				return err
			}
		}
	}
	if err := j.leaveReplacedNetns(); err != nil {
		return err
	}
	if IsCollecting(ctx) && j.past != nil && !j.past.Created.Equal(j.interrupted) && isAlive(j.past) {
		return errAddedAgain(j.past)
	}
	if j.past != nil {
		if i := j.past.Last(j.Name); i >= 0 {
			j.ports = j.past.Parts[i].Ports
			if list, err := j.past.Parts[i].Objects.Get(); err == nil {
				j.objects, j.recorded = list, true
				return nil
			}
		}
	}
	j.objects, j.recorded = j.unrecorded(), false
	return nil
}

// takePart takes the plugin's part out of the record that was read. The file has it until the objects are removed.
func (j *job) takePart() {
	if j.past == nil {
		return
	}
	if i := j.past.Last(j.Name); i >= 0 {
		j.past.Parts = slices.Delete(j.past.Parts, i, i+1)
	}
}

// unrecorded returns what the plugin, or the reference plugin of its name, may have created for this configuration.
// Objects that can no longer be computed are not found by name.
func (j *job) unrecorded() (list kernel.Objects) {
	find := j.conf.Links
	if f, ok := j.conf.(Finder); ok {
		find = func(a *Attachment, _ *cni.Result) (kernel.Objects, error) { return f.Find(a) }
	}
	list, _ = settle(j.att, &cni.Result{}, find)
	list = append(list, j.unrecordedCommands()...)
	if h, ok := j.conf.(ReferenceFinder); ok {
		list = append(list, h.ReferenceObjects(j.att)...)
	}
	return list
}

// unrecordedCommands returns the rules of iptables for prevResult. They have no owner tag by which they could be found.
func (j *job) unrecordedCommands() (list kernel.Objects) {
	if j.base.Prev == nil {
		return nil
	}
	all, _ := j.expectedObjects(j.base.Prev) // rules that can no longer be computed stay
	for _, c := range kernel.Of[*kernel.Command](all) {
		list = append(list, c)
	}
	return list
}

// keepADDAway takes what a collector needs so that no ADD of the attachment begins meanwhile: the record of an interrupted
// ADD, or without a record the reservation. An ADD may begin after one plugin of the list has released the record.
func (j *job) keepADDAway(ctx context.Context) error {
	switch {
	case j.past != nil && j.past.IsHeld():
		return nil
	case j.past != nil:
		return j.takeInterrupted()
	case ctx.Value(collectingKey{}) == reserved:
		return nil
	}
	err := j.reserveNow(j.att.Owner)
	if errors.Is(err, os.ErrExist) {
		return cni.Errorf(cni.CodeTryAgainLater, "%w", err)
	}
	return err
}

func (s *session) takeInterrupted() error {
	rec, place, err := s.dir.TakeForGC(s.past)
	if errors.Is(err, os.ErrNotExist) {
		return errAddedAgain(s.past)
	}
	if err == nil {
		s.reservation.Free()
		s.past, s.reservation, s.reservedFor, s.forGC, s.interrupted = rec, place, rec.Owner(), true, rec.Created
	}
	return err
}

func errAddedAgain(rec *attach.Record) error {
	return cni.Errorf(cni.CodeTryAgainLater, "container %s was added to network %s as %s again after GC began", rec.ContainerID, rec.Network, rec.IfName)
}

// leaveReplacedNetns closes the namespace if it is not the recorded one. The path belongs to another container by now,
// and nothing in there is ours to remove.
func (j *job) leaveReplacedNetns() (err error) {
	s := j.session
	if s.past == nil || s.netns == nil || s.past.NetnsID == "" {
		return nil
	}
	id, err := s.engine.NetnsID() // of the open handle: the path may be gone or replaced
	if err != nil || id.Same(s.past.Namespace()) {
		return err
	}
	s.unlockNetns()
	s.engine.Close()
	s.netns.Close()
	s.netns = nil
	s.engine, err = j.openHost()
	return err
}

// openHost returns an engine without the container's namespace.
func (j *job) openHost() (*kernel.Engine, error) {
	e, err := kernel.Open(nil, kernel.Options{Context: j.ctx, Alive: j.dir.Alive, SameContainer: j.dir.SameContainer})
	if err == nil && j.ovs != nil {
		e.UseSwitch(j.ovs)
	}
	return e, err
}

// collectingKey is the context key for IsCollecting.
type collectingKey struct{}

// The values of collectingKey.
const (
	unreserved = "unreserved"
	reserved   = "reserved" // the collector has the attachment's reservation
)

// Collecting makes DELs skip an attachment that is alive or being added: the runtime may have added it again between
// the collector's listing and its DEL. A collector that has the attachment's reservation calls CollectingReserved instead.
func Collecting(ctx context.Context) context.Context {
	return context.WithValue(ctx, collectingKey{}, unreserved)
}

// CollectingReserved is Collecting for a collector that has the attachment's reservation.
func CollectingReserved(ctx context.Context) context.Context {
	return context.WithValue(ctx, collectingKey{}, reserved)
}

// IsCollecting reports whether a collector runs this DEL; see Collecting.
func IsCollecting(ctx context.Context) bool { return ctx.Value(collectingKey{}) != nil }

func isAlive(rec *attach.Record) bool {
	for _, p := range rec.Parts {
		if p.Adding() {
			return true
		}
	}
	return attached(rec) && rec.HasNetns()
}
